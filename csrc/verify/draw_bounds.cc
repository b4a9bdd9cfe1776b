#include "verify/draw_bounds.h"

#include <algorithm>

#include "signature/op_facts.h"

namespace cudaforge {
namespace {

// Returns true for a pointwise operator that computes, rather than only moves elements.
bool Computes(const OpFacts& facts) {
  if (facts.kind == OpKind::kPointwise) return true;
  return facts.kind == OpKind::kMoves && facts.needs == OpNeeds::kItsPlace && !facts.keeps_role;
}

bool MakesIntegersOfNumbers(const OpSignature& signature, const Node& node) {
  const bool integers =
      std::any_of(node.outputs.begin(), node.outputs.end(), [](const TensorSpec& spec) {
        return spec.dtype == DType::kInt64 || spec.dtype == DType::kInt32;
      });
  return integers && std::any_of(node.args.begin(), node.args.end(), [&](const Json& arg) {
           const TensorSpec* spec = signature.SpecOf(arg);
           return spec != nullptr && IsFloating(spec->dtype);
         });
}

}  // namespace

bool BearsFarNumbers(const OpSignature& signature) {
  const bool alone = signature.nodes.size() == 1;
  return std::all_of(signature.nodes.begin(), signature.nodes.end(), [alone](const Node& node) {
    const OpFacts& facts = FactsOf(node.op);
    if (facts.multiplies) return alone;
    if (facts.tame || facts.extreme != 0 || facts.kind == OpKind::kMoves) return true;
    if (facts.kind == OpKind::kPointwise) return facts.match != Match::kTolerance;
    return facts.sums == OpSums::kSum || facts.sums == OpSums::kMean;
  });
}

MeetingBounds BoundsOfMeeting(const OpSignature& signature, std::span<const InputRole> roles) {
  MeetingBounds bounds;
  int computing = 0;
  bool to_the_ends = true;
  for (const Node& node : signature.nodes) {
    const OpFacts& facts = FactsOf(node.op);
    const bool exact = facts.match != Match::kTolerance;
    if (facts.kind != OpKind::kPointwise && facts.kind != OpKind::kMoves) return {};
    if (!exact && !facts.tame && !facts.settled) return {};
    if (MakesIntegersOfNumbers(signature, node)) return {};
    const bool truths = std::all_of(node.outputs.begin(), node.outputs.end(),
                                    [](const TensorSpec& s) { return !IsFloating(s.dtype); });
    to_the_ends = to_the_ends && (exact || facts.multiplies || facts.settled || truths);
    computing += Computes(facts) ? 1 : 0;
  }
  for (size_t i = 0; i < roles.size(); ++i) {
    const TensorSpec& spec = signature.inputs[i];
    const bool any = roles[i].kind == InputRole::Kind::kValue && roles[i].limit == 0;
    bounds.operands += any && spec.dtype != DType::kBool && spec.numel() > 0 ? 1 : 0;
  }
  bounds.alone = computing == 1;
  bounds.bears_largest = bounds.alone && to_the_ends;
  bounds.meets = bounds.operands > 0 && computing > 0 && (bounds.alone || bounds.operands > 1);
  return bounds;
}

bool PicksNumbers(const OpSignature& signature) {
  bool picks = false;
  for (const Node& node : signature.nodes) {
    const OpFacts& facts = FactsOf(node.op);
    const bool reduces = facts.kind == OpKind::kReduces || facts.kind == OpKind::kScans;
    if (reduces && (facts.match == Match::kEqual || facts.place >= 0)) {
      picks = true;
    } else if (facts.match == Match::kTolerance) {
      return false;
    }
  }
  return picks;
}

bool IsGivenVariances(const OpSignature& signature, bool* bears_zero) {
  bool given = false;
  *bears_zero = true;
  for (const Node& node : signature.nodes) {
    const OpFacts& facts = FactsOf(node.op);
    const bool positive = std::any_of(
        facts.operands.begin(), facts.operands.end(),
        [](const OperandFacts& operand) { return operand.role == OperandRole::kPositive; });
    if (!positive) continue;
    if (facts.epsilon < 0) return false;
    given = true;
    const auto at = static_cast<size_t>(facts.epsilon);
    *bears_zero = *bears_zero && at < node.args.size() && node.args[at].is_number() &&
                  node.args[at].get<double>() >= 1e-8;
  }
  return given;
}

}  // namespace cudaforge
