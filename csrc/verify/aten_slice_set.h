// Elements of one output on one set of inputs, measured: ATen's answers in several orders, float64,
// and what rounding the inputs does to it. On the host, a few hundred bytes an element.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "signature/aten_pch.h"
#include "verify/compare.h"
#include "verify/decoys.h"
#include "verify/slice_plan.h"

namespace cudaforge {

// Random moves of the inputs by a rounding unit at first, and more where a candidate is in doubt
// (see yardstick.cc).
inline constexpr uint64_t kSliceMoves = 4;
inline constexpr uint64_t kMoreSliceMoves = 16;

struct MeasuredElements {
  std::vector<SliceBatch> batches;  // of floating outputs
  std::vector<int64_t> numbers;     // row-major, in the whole output; batch by batch
  std::string aten;                 // ATen's own bytes there, one element after the other
  std::vector<std::string> runs;    // of the same calls on the slices, in several orders
  std::vector<double> float64;
  std::vector<std::vector<double>> moves;

  size_t count() const { return numbers.size(); }
  void Append(const MeasuredElements& other);
};

// Measures what `batches` have; for exact outputs (`plan` null) only what ATen has at `numbers`.
// kNoMemory, or kUnsupported: ATen refuses.
Status MeasureSlices(const SlicePlan& plan, std::vector<SliceBatch> batches,
                     std::span<const at::Tensor> inputs, const at::Tensor& aten, uint64_t seed,
                     MeasuredElements* to);
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
