// SliceJudgement's verdicts on candidates.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "verify/aten_slice_judgement.h"
#include "verify/aten_slice_state.h"
#include "verify/elements.h"

namespace cudaforge {
namespace {

constexpr size_t kMostAtenWrong = 8;
// An error above this many times its limit is wrong in any order of the sums.
constexpr double kOrdersWiden = 64;

// Notes elements in which ATen is wrong, and the candidate is correct and different.
void NoteAtenWrong(size_t output, DType dtype, const std::vector<int64_t>& sizes,
                   const MeasuredElements& elements, const std::vector<bool>& wrong,
                   const std::string& candidate, Json* notes) {
  const auto size = static_cast<size_t>(DTypeSize(dtype));
  for (size_t i = 0; i < wrong.size() && notes->size() < kMostAtenWrong; ++i) {
    if (!wrong[i]) continue;
    const double c = LoadElement(dtype, candidate.data() + i * size);
    const double a = LoadElement(dtype, elements.aten.data() + i * size);
    const double r = elements.float64[i];
    if (!(std::fabs(c - r) < std::fabs(a - r)) && std::isfinite(a)) continue;
    const Json note = {{"output", output},
                       {"element", Unflatten(sizes, elements.numbers[i])},
                       {"candidate", FloatToJson(c)},
                       {"aten", FloatToJson(a)},
                       {"fp64", FloatToJson(r)}};
    if (std::find(notes->begin(), notes->end(), note) == notes->end()) notes->push_back(note);
  }
}

// More sets may also clear small errors of many elements, because elements that share a sum err
// together.
bool MoreSetsMayClear(const OutputReference& reference, const Verdict& verdict) {
  constexpr int64_t kSmall = 1000;
  if (reference.SetsMayClear(verdict)) return true;
  const Json& error = MemberOrNull(verdict.evidence, "error");
  const Json& limit = MemberOrNull(verdict.evidence, "limit");
  const double little = reference.whole_numel() < kSmall ? 4 : 2;
  return error.is_number() && limit.is_number() &&
         error.get<double>() <= little * limit.get<double>();
}

// The error of a refusal over its limit; infinite if it has none.
double Excess(const Verdict& verdict) {
  double excess = 0;
  for (const auto& [error, limit] : {std::pair("error", "limit"), {"rms_error", "rms_limit"}}) {
    const Json& found = MemberOrNull(verdict.evidence, error);
    const Json& allowed = MemberOrNull(verdict.evidence, limit);
    if (!found.is_number() || !allowed.is_number()) continue;
    excess = std::max(excess, found.get<double>() / allowed.get<double>());
  }
  return excess > 0 ? excess : std::numeric_limits<double>::infinity();
}

}  // namespace

// Measures more if that may clear a refused candidate. Returns true if limits changed.
bool SliceJudgement::MeasureInDoubt(size_t set, size_t output, const SetTensors& tensors,
                                    const Verdict& verdict, SliceVerdict* into) {
  Set::One& one = sets_[set]->outputs[output];
  if (verdict.kind != VerdictKind::kWrongValues || one.elements.effort.all_orders ||
      !outputs_[output].plan.has_value() || !(Excess(verdict) <= kOrdersWiden)) {
    return false;
  }
  const Status measured =
      MeasureThoroughly(*outputs_[output].plan, tensors.inputs, tensors.aten[output].scalar_type(),
                        sets_[set]->seed, &one.elements);
  if (!measured.ok()) {
    into->status = measured;
    return false;
  }
  SetReference(set, output);
  one.more_perturbations = false;
  decoys_to_try_ = true;
  return true;
}

Verdict SliceJudgement::CheckFixed(size_t set, size_t output, const SetTensors& tensors,
                                   const at::Tensor& candidate, SliceVerdict* into) {
  Set::One& one = sets_[set]->outputs[output];
  const std::string where = sets_[set]->Where(output);
  const std::string bytes = BytesOfElements(candidate, one.elements.numbers);
  Verdict verdict = one.reference->Check(bytes, where);
  // Uses limits that were widened for an earlier candidate, or by AddTypical.
  if (!verdict.accepted()) verdict = one.reference->Check(bytes, where, /*closely=*/true);
  if (MeasureInDoubt(set, output, tensors, verdict, into)) {
    verdict = one.reference->Check(bytes, where, /*closely=*/true);
  }
  if (one.reference->PerturbationsMayClear(verdict) && !one.more_perturbations) {
    one.more_perturbations = true;
    const auto moved =
        PerturbSlices(*outputs_[output].plan, one.elements, tensors.inputs, sets_[set]->seed);
    if (!moved.ok()) {
      into->status = moved.status();
      return verdict;
    }
    for (const std::vector<double>& move : *moved) one.reference->AddPerturbation(move);
    verdict = one.reference->Check(bytes, where, /*closely=*/true);
  }
  if (verdict.accepted()) {
    NoteAtenWrong(output, outputs_[output].dtype, signature_.output_spec(output).sizes,
                  one.elements, one.aten_wrong, bytes, &into->aten_wrong);
  }
  into->more_sets_may_clear = MoreSetsMayClear(*one.reference, verdict);
  return verdict;
}

Verdict SliceJudgement::CheckSuspects(size_t set, size_t output, const SetTensors& tensors,
                                      const at::Tensor& candidate,
                                      std::span<const int64_t> suspects, SliceVerdict* into) {
  Set::One& one = sets_[set]->outputs[output];
  const std::string where = sets_[set]->Where(output);
  const int64_t all = signature_.output_spec(output).numel();
  if (!outputs_[output].plan.has_value()) {
    MeasuredElements exact;
    exact.numbers.assign(suspects.begin(), suspects.end());
    exact.aten = BytesOfElements(tensors.aten[output], suspects);
    std::vector<bool> wrong;
    return ReferenceOf(output, exact, {}, 0, &wrong)
        .Check(BytesOfElements(candidate, suspects), where);
  }
  const SlicePlan& plan = *outputs_[output].narrow;
  const uint64_t seed = sets_[set]->seed;
  if (!std::equal(suspects.begin(), suspects.end(), one.suspects.begin(), one.suspects.end()) ||
      one.of_suspects.effort != one.elements.effort) {
    MeasuredElements measured;
    measured.sums = one.elements.sums;
    const Status status = MeasureSlices(plan, plan.Batches(suspects, 0, 0, seed), tensors.inputs,
                                        tensors.aten[output], seed, one.elements.effort, &measured);
    if (!status.ok()) {
      into->status = status;
      return {};
    }
    one.suspects.assign(suspects.begin(), suspects.end());
    one.of_suspects = std::move(measured);
  }
  const MeasuredElements& worst = one.of_suspects;
  // Combined with the fixed elements, whose error sizes are known.
  MeasuredElements both = one.elements;
  const size_t fixed = both.count();
  both.Append(worst);
  std::vector<bool> aten_wrong;
  OutputReference reference = ReferenceOf(output, both, {}, one.ratio, &aten_wrong);
  const std::string bytes = BytesOfElements(candidate, both.numbers);
  for (OutputDraw draw : one.typical) {  // of the fixed elements only
    draw.aten.resize(both.aten.size());
    draw.oracle.resize(both.count(), std::numeric_limits<double>::quiet_NaN());
    reference.AddTypical(draw, /*alone=*/true);
  }
  Verdict verdict = reference.CheckElements(bytes, where, !one.typical.empty());
  if (MeasureInDoubt(set, output, tensors, verdict, into)) {
    return CheckSuspects(set, output, tensors, candidate, suspects, into);
  }
  if (reference.PerturbationsMayClear(verdict, all)) {
    const double none = std::numeric_limits<double>::quiet_NaN();
    const auto moved = PerturbSlices(plan, worst, tensors.inputs, seed);
    if (!moved.ok()) {
      into->status = moved.status();
      return verdict;
    }
    for (size_t m = 0; m < moved->size(); ++m) {
      std::vector<double> move(fixed, none);
      move.insert(move.end(), (*moved)[m].begin(), (*moved)[m].end());
      reference.AddPerturbation(move);
    }
    verdict = reference.CheckElements(bytes, where, /*closely=*/true);
  }
  into->more_sets_may_clear = MoreSetsMayClear(reference, verdict);
  if (verdict.accepted()) {
    NoteAtenWrong(output, outputs_[output].dtype, signature_.output_spec(output).sizes, both,
                  aten_wrong, bytes, &into->aten_wrong);
  }
  return verdict;
}

SliceVerdict SliceJudgement::Check(size_t set, const SetTensors& tensors,
                                   std::span<const at::Tensor> candidate,
                                   const ElementLists& suspects) {
  CF_CHECK(set < sets_.size() && candidate.size() == outputs_.size()) << "no such set or outputs";
  SliceVerdict result;
  try {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      result.verdict = CheckFixed(set, o, tensors, candidate[o], &result);
      if (!result.status.ok() || !result.verdict.accepted()) return result;
      if (o >= suspects.size() || suspects[o].empty()) continue;
      result.verdict = CheckSuspects(set, o, tensors, candidate[o], suspects[o], &result);
      if (!result.status.ok() || !result.verdict.accepted()) return result;
    }
  } catch (const std::exception& error) {
    result.status = StatusOfAten(error);
    return result;
  }
  if (decoys_to_try_) {
    result.status = TryDecoys();
    if (!result.status.ok()) return result;
    decoys_to_try_ = false;
  }
  for (Json note : result.aten_wrong) {
    const auto output = note["output"].get<size_t>();
    note.erase("output");
    note.erase("candidate");
    Json& kept = sets_[set]->outputs[output].aten_wrong_elements;
    const bool known = std::find(kept.begin(), kept.end(), note) != kept.end();
    if (!known && kept.size() < kMostAtenWrong) kept.push_back(std::move(note));
  }
  return result;
}

}  // namespace cudaforge
