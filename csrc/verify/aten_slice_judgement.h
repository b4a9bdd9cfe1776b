// SliceJudgement: decides by float64 on slices whether a candidate's outputs are correct. Outputs
// of integers or of moved data are compared exactly; the screen compares all their elements.
// Tensors are on one device, in the signature's sizes and strides. Extra memory: limits.bytes of
// float64 on the device, and about 3 MiB on the host per output and set. Not thread-safe.
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

// One set of inputs, on the device.
struct SetTensors {
  std::span<const at::Tensor> inputs;
  std::span<const at::Tensor> aten;  // ATen's outputs
};

// Row-major indices of elements, by output. Missing lists are empty.
using ElementLists = std::vector<std::vector<int64_t>>;

struct SliceVerdict {
  // kNoMemory; kUnsupported: ATen refuses float64 here, or widened limits would accept a decoy. The
  // verdict is meaningless then.
  Status status;
  Verdict verdict;
  // ATen's answers on more sets of this kind may change the verdict: see AddTypical.
  bool more_sets_may_clear = false;
  // Elements in which ATen is wrong by float64 and the candidate is correct: [{output, element,
  // candidate, aten, fp64}], at most 8.
  Json aten_wrong = Json::array();
};

// Order of calls: Create; Prepare for each set of inputs, with ATen's outputs; Finish; then Check
// for each candidate and set, with the elements that the screen found suspicious. Prepare measures
// the first, the last and secret random elements; Check measures the suspicious ones. A first pass
// measures little (kQuick). A candidate that is refused by little gets more (kThorough), which
// widens the limits.
class SliceJudgement {
 public:
  // The measurements of one set.
  class Set;

  // kNoMemory: an output cannot be cut into slices that fit; the message says how much memory it
  // needs.
  static Result<std::unique_ptr<SliceJudgement>> Create(const OpSignature& signature,
                                                        const SliceLimits& limits = {});
  ~SliceJudgement();

  // Measures a set, and returns its index. `seed` is secret. kNoMemory; kUnsupported: ATen refuses
  // float64.
  Result<size_t> Prepare(std::string name, const SetTensors& tensors, uint64_t seed);
  // Call after the last set. Pools ATen's errors of outputs with fewer than 256 elements, and
  // chooses the rule for each output.
  void Finish();
  // kUnsupported: one of the decoys (decoys.h) would pass. REQUIRES: after Finish.
  Status TryDecoys() const;
  // Returns kTolerance, or the exact comparison for all elements of this output. The latter also if
  // ATen was exact in all sets. REQUIRES: after Finish.
  Match match(size_t output) const;

  // `candidate`: its outputs on set `set`. `tensors`: those given to Prepare.
  SliceVerdict Check(size_t set, const SetTensors& tensors, std::span<const at::Tensor> candidate,
                     const ElementLists& suspects);
  // Adds ATen's answers on another set of the same kind, which widens the limits of `set`.
  Status AddTypical(size_t set, const SetTensors& tensors, uint64_t seed);

  // {"cases": [{case, output, rule, elements, of_elements, slices, orders, aten_max_error,
  // aten_rms_error, max_limit, rms_limit, aten_wrong}]}. "slices" and later fields: only of outputs
  // with slices. "aten_wrong": their number, if any. "aten_wrong_elements": [{element
  // (its indices), aten, fp64}], at most 8 in which a candidate was correct.
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
  bool decoys_to_try_ = false;  // limits were widened
};

}  // namespace cudaforge
