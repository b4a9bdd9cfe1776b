// Measurements of some elements of one output on one set of inputs: ATen's answers in several
// orders, float64, and the effect of rounding the inputs. On the host, a few hundred bytes an
// element.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "signature/aten_pch.h"
#include "verify/aten_large_sums.h"
#include "verify/compare.h"
#include "verify/decoys.h"
#include "verify/slice_plan.h"

namespace cudaforge {

// How much to measure. kQuick: few orders of the sums, and one random perturbation of the inputs by
// a rounding unit. kThorough, for a candidate in doubt: all orders and four perturbations. More of
// either widens the limits.
struct Effort {
  uint64_t moves = 1;
  bool all_orders = false;
  bool operator==(const Effort&) const = default;
};
inline constexpr Effort kQuick = {};
inline constexpr Effort kThorough = {4, true};
inline constexpr uint64_t kMorePerturbations = 16;  // than kThorough's

struct MeasuredElements {
  std::vector<SliceBatch> batches;  // of floating outputs
  std::vector<int64_t> numbers;     // row-major, in the whole output, in batch order
  std::string aten;                 // ATen's bytes, one element after the other
  std::vector<std::string> runs;    // of the same calls on the slices, in several orders
  Effort effort;
  std::vector<double> float64;
  std::vector<std::vector<double>> moves;
  std::shared_ptr<KnownSums> sums = std::make_shared<KnownSums>();

  size_t count() const { return numbers.size(); }
  // REQUIRES: the same effort.
  void Append(const MeasuredElements& other);
};

// Measures `batches`. kNoMemory, or kUnsupported: ATen refuses.
Status MeasureSlices(const SlicePlan& plan, std::vector<SliceBatch> batches,
                     std::span<const at::Tensor> inputs, const at::Tensor& aten, uint64_t seed,
                     Effort effort, MeasuredElements* to);
// Adds what kThorough has and `of` lacks. `seed`: that of MeasureSlices. The same errors, which
// leave `of` unchanged.
Status MeasureThoroughly(const SlicePlan& plan, std::span<const at::Tensor> inputs,
                         at::ScalarType dtype, uint64_t seed, MeasuredElements* of);
// Returns kMorePerturbations further perturbations of the same elements, one vector each.
Result<std::vector<std::vector<double>>> PerturbSlices(const SlicePlan& plan,
                                                       const MeasuredElements& elements,
                                                       std::span<const at::Tensor> inputs,
                                                       uint64_t seed);
// The bytes of elements with these row-major indices, one after the other.
std::string BytesOfElements(const at::Tensor& tensor, std::span<const int64_t> numbers);

// A wrong answer for those elements; `aten_bytes` are the correct one. nullopt if this decoy does
// not apply: no input to copy, only one row, or rows of one element.
std::optional<std::string> DecoyOfElements(Decoy decoy, const TensorSpec& spec,
                                           std::span<const int64_t> numbers,
                                           const std::string& aten_bytes, const at::Tensor& aten,
                                           const OpSignature& signature,
                                           std::span<const at::Tensor> inputs);

// Converts an exception of ATen: kNoMemory, or kUnsupported with its message.
Status StatusOfAten(const std::exception& error);

}  // namespace cudaforge
