// Elements of one output on one set of inputs, measured: ATen's answers in several orders, float64,
// and what rounding the inputs does to it. On the host, a few hundred bytes an element.
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

// How much is measured. At first (kQuick): few orders of the sums, and one random move of the
// inputs by a rounding unit. Where a candidate is in doubt (kThorough): all orders and four moves.
// More of either widens the limits.
struct Effort {
  uint64_t moves = 1;
  bool all_orders = false;
  bool operator==(const Effort&) const = default;
};
inline constexpr Effort kQuick = {};
inline constexpr Effort kThorough = {4, true};
inline constexpr uint64_t kMoreSliceMoves = 16;  // than kThorough's

struct MeasuredElements {
  std::vector<SliceBatch> batches;  // of floating outputs
  std::vector<int64_t> numbers;     // row-major, in the whole output; batch by batch
  std::string aten;                 // ATen's own bytes there, one element after the other
  std::vector<std::string> runs;    // of the same calls on the slices, in several orders
  Effort effort;
  std::vector<double> float64;
  std::vector<std::vector<double>> moves;
  std::shared_ptr<KnownSums> sums = std::make_shared<KnownSums>();

  size_t count() const { return numbers.size(); }
  // REQUIRES: the same effort.
  void Append(const MeasuredElements& other);
};

// Measures what `batches` have. kNoMemory, or kUnsupported: ATen refuses.
Status MeasureSlices(const SlicePlan& plan, std::vector<SliceBatch> batches,
                     std::span<const at::Tensor> inputs, const at::Tensor& aten, uint64_t seed,
                     Effort effort, MeasuredElements* to);
// What kThorough has and `of` has not yet; `seed`: that of MeasureSlices. Errors as there, which
// leave `of` as it was.
Status MeasureThoroughly(const SlicePlan& plan, std::span<const at::Tensor> inputs,
                         at::ScalarType dtype, uint64_t seed, MeasuredElements* of);
// kMoreSliceMoves more moves of the same elements, each one of theirs.
Result<std::vector<std::vector<double>>> MoveSlices(const SlicePlan& plan,
                                                    const MeasuredElements& elements,
                                                    std::span<const at::Tensor> inputs,
                                                    uint64_t seed);
// The bytes of elements of these row-major numbers, one after the other.
std::string BytesOfElements(const at::Tensor& tensor, std::span<const int64_t> numbers);

// A wrong answer in place of those elements, where `aten_bytes` are the right one; nullopt where it
// makes no sense: no input to copy, one row only, rows of one element.
std::optional<std::string> DecoyOfElements(Decoy decoy, const TensorSpec& spec,
                                           std::span<const int64_t> numbers,
                                           const std::string& aten_bytes, const at::Tensor& aten,
                                           const OpSignature& signature,
                                           std::span<const at::Tensor> inputs);

// What became of a call of ATen that threw: kNoMemory, or kUnsupported with its message.
Status StatusOfAten(const std::exception& error);

}  // namespace cudaforge
