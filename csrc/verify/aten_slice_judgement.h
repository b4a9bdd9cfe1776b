// SliceJudgement: whether the outputs of a candidate are right, by float64 on slices.
//
// Use, for one region:
//   Create; for each set of inputs: Prepare, with ATen's outputs; Finish; then for each candidate
//   and set: Check, with the elements that the screen found suspicious.
// A set's slices are measured once, in Prepare: the first and the last element, and a secret draw.
// Suspicious elements are measured in Check, by limits that follow from both. Little is measured at
// first (kQuick), and more where a candidate is refused by little: the limits widen then. Outputs
// of integers, and of data that is only moved, are compared exactly in the same elements; the
// screen compares all of their elements.
//
// Tensors are on one device, in the signature's sizes and strides. Memory beside them: at most
// limits.bytes of float64 at once on the device, and about 3 MiB on the host for an output and set.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "kernel/verdict.h"
#include "signature/aten_pch.h"
#include "signature/op_signature.h"
#include "verify/aten_slice_set.h"
#include "verify/compare.h"
#include "verify/slice_plan.h"

namespace cudaforge {

// One set of inputs, as the caller has it on the device.
struct SetTensors {
  std::span<const at::Tensor> inputs;
  std::span<const at::Tensor> aten;  // ATen's outputs
};

// Row-major numbers of elements, by output; fewer lists than outputs are empty ones.
using ElementLists = std::vector<std::vector<int64_t>>;

struct SliceVerdict {
  // kNoMemory; kUnsupported: ATen refuses float64 here, or the limits, widened for a candidate in
  // doubt, would let a decoy pass. The verdict then says nothing.
  Status status;
  Verdict verdict;
  // ATen's answers on more sets of this kind may clear it: see AddTypical.
  bool more_sets_may_clear = false;
  // Elements in which ATen is wrong by float64 and the candidate is not: [{output, element,
  // candidate, aten, fp64}], at most 8.
  Json aten_wrong = Json::array();
};

class SliceJudgement {
 public:
  // What was measured of one set.
  class Set;

  // kNoMemory: an output cannot be cut down to slices that fit; the message says how much it needs.
  static Result<std::unique_ptr<SliceJudgement>> Create(const OpSignature& signature,
                                                        const SliceLimits& limits = {});
  ~SliceJudgement();

  // Measures a set, and returns its number. `seed` is secret. kNoMemory; kUnsupported: ATen refuses
  // float64.
  Result<size_t> Prepare(std::string name, const SetTensors& tensors, uint64_t seed);
  // After the last set: pools ATen's errors of outputs of fewer than 256 elements, and settles by
  // which rule each output is compared.
  void Finish();
  // kUnsupported: one of the decoys (decoys.h) would pass as an output. REQUIRES: after Finish.
  Status TryDecoys() const;
  // kTolerance, or how every element of this output is to be compared with ATen's: also where ATen
  // was exact in all sets. REQUIRES: after Finish.
  Match match(size_t output) const;

  // `candidate`: its outputs on set number `set`; `tensors`: the same ones that it was prepared
  // with.
  SliceVerdict Check(size_t set, const SetTensors& tensors, std::span<const at::Tensor> candidate,
                     const ElementLists& suspects);
  // ATen's answers on another set of the same kind, which widen the limits of set number `set`.
  Status AddTypical(size_t set, const SetTensors& tensors, uint64_t seed);

  // {"cases": [{case, output, rule, elements, of_elements, slices, orders, aten_max_error,
  //   aten_rms_error, max_limit, rms_limit, aten_wrong}]}. "slices" and what follows it: of outputs
  // with slices. "aten_wrong": how many of the elements; absent where none. "aten_wrong_elements":
  // [{element (its indices), aten, fp64}], at most 8 in which a candidate was right.
  Json Report() const;

 private:
  struct Output;
  SliceJudgement();

  OutputReference ReferenceOf(size_t output, const MeasuredElements& elements,
                              std::span<const OutputDraw> draws, double ratio,
                              std::vector<bool>* aten_wrong) const;
  std::vector<OutputDraw> DrawsOfOthers(size_t set, size_t output) const;
  void SetReference(size_t set, size_t output);
  bool MeasureInDoubt(size_t set, size_t output, const SetTensors& tensors, const Verdict& verdict,
                      SliceVerdict* into);
  Verdict CheckFixed(size_t set, size_t output, const SetTensors& tensors,
                     const at::Tensor& candidate, SliceVerdict* into);
  Verdict CheckSuspects(size_t set, size_t output, const SetTensors& tensors,
                        const at::Tensor& candidate, std::span<const int64_t> suspects,
                        SliceVerdict* into);

  OpSignature signature_;
  SliceLimits limits_;
  std::vector<Output> outputs_;
  std::vector<std::unique_ptr<Set>> sets_;
  bool decoys_to_try_ = false;  // limits have widened
};

}  // namespace cudaforge
