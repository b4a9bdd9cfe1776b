#include "verify/input_plan.h"

#include <algorithm>

#include "verify/match.h"

namespace cudaforge {
namespace {

// Bytes of inputs and outputs beyond which four of the sets are tried, or three.
constexpr int64_t kLargeBytes = int64_t{32} << 20;
constexpr int64_t kHugeBytes = int64_t{256} << 20;
// Sums of n rows of 2,048 in float32 that were rejected (40 to 400 seeds each), without further
// draws and with them, by how many times ATen's root-mean-square error on normal numbers the
// kernel's is:
//   1.1 (64 lanes)  n = 1: 1.8%, 0    n = 8: 2%, 0      n = 32: 0, 0
//   1.4 (32 lanes)         8%, 0.5%          9.5%, 0            5%, 2.5%
//   1.9 (16 lanes)         18%, 6%           34%, 7%            37%, 12.5%
//   3.7 (4 lanes)          72%, 74%          99%, 97%           100%, 95%
// So a kernel that is right but twice as imprecise as is allowed may pass, seldom. Sums of inputs
// in bfloat16 or cut to TF32, sums in bfloat16, rows without their last element and one element
// off by 1e-5 of itself were rejected always (n = 1, 8).
// Draws of a small output: until they have kPool elements, kMostDraws at most, and no more than
// have kDrawnElements input elements, but kFewestDraws in any case: they cost about half of what
// the set itself does.
constexpr int64_t kPool = 4096;
constexpr int64_t kMostDraws = 127;
constexpr int64_t kFewestDraws = 2;
constexpr int64_t kDrawnElements = int64_t{1} << 22;
// Sets on which ATen runs where a candidate is in doubt: as many as ATen's largest error is taken
// of for small outputs (kRounds in yardstick.cc), but no more than have kDrawnElements input
// elements together, and kFewestInDoubt in any case.
constexpr int64_t kFewestInDoubt = 4;
constexpr int64_t kMostInDoubt = 16;
// Outputs of so few elements are tried on two draws of each set, where the inputs are small.
constexpr int64_t kTwice = 8;
// Of more input elements than these, turns of kOneSpecial cost at most this share of what the other
// sets do, but there is one in any case. A set costs as much as so many draws.
constexpr int64_t kFewElements = int64_t{1} << 17;
constexpr double kShareOfTurns = 0.15;
constexpr double kDrawsOfASet = 7;

// Whether a large region is tried on this set: on those whose rows are of many kinds, and on one
// with the least alignment that the signature promises (see MakeInputs).
bool KeptWhenLarge(InputKind kind, bool floating, bool huge) {
  switch (kind) {
    case InputKind::kNormal:
    case InputKind::kSpecialValues:
    case InputKind::kMixed:
    case InputKind::kOneUnlike:
    case InputKind::kOneSpecial:
    case InputKind::kFarOut:
    case InputKind::kNanOperands:
      return true;
    case InputKind::kRowScales:
      return !floating || !huge;
    case InputKind::kInfiniteOperands:
      return !huge;
    case InputKind::kUniform:
      return !floating;
    case InputKind::kAllEqual:
      return !floating && !huge;
    case InputKind::kZerosDenormals:
    case InputKind::kSmallIntegers:
      return false;
  }
  return true;
}

std::vector<InputKind> KindsForLarge(const std::vector<InputKind>& kinds, bool floating,
                                     bool huge) {
  std::vector<InputKind> kept;
  int turns = 0;
  for (const InputKind kind : kinds) {
    if (kind == InputKind::kOneSpecial) {
      if (std::find(kept.begin(), kept.end(), kind) != kept.end()) continue;
    } else if (HasTurns(kind) && ++turns > (huge ? 2 : 4)) {
      continue;
    }
    if (KeptWhenLarge(kind, floating, huge)) kept.push_back(kind);
  }
  return kept;
}

void LimitTurns(InputPlan* plan) {
  double others = 0;
  for (const InputKind kind : plan->kinds) {
    if (kind != InputKind::kOneSpecial) others += plan->Cost(kind);
  }
  int64_t left = std::max<int64_t>(static_cast<int64_t>(others * kShareOfTurns), 1);
  std::erase_if(plan->kinds,
                [&](InputKind kind) { return kind == InputKind::kOneSpecial && left-- <= 0; });
}

}  // namespace

bool InputPlan::Varies(InputKind kind) { return kind != InputKind::kAllEqual && !HasTurns(kind); }

double InputPlan::Cost(InputKind kind) const {
  if (!Varies(kind)) return 1;
  return (twice ? 2 : 1) + static_cast<double>(draws) / kDrawsOfASet;
}

bool NeedsMoreDraws(const TensorSpec& spec) {
  return IsFloating(spec.dtype) && spec.dtype != DType::kFloat64 && spec.numel() > 0 &&
         spec.numel() < kPool;
}

InputPlan PlanInputs(const OpSignature& signature, std::span<const InputRole> roles) {
  InputPlan plan;
  plan.kinds = InputKindsFor(signature, roles);
  int64_t bytes = 0;
  int64_t elements = 1;
  int64_t smallest = kPool;
  for (const TensorSpec& spec : signature.inputs) {
    bytes += spec.StorageBytes();
    elements += spec.numel();
  }
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    const TensorSpec& spec = signature.output_spec(o);
    bytes += spec.StorageBytes();
    if (NeedsMoreDraws(spec) && !IsConstant(signature, o))
      smallest = std::min(smallest, spec.numel());
  }
  if (bytes > kLargeBytes) {
    plan.kinds = KindsForLarge(plan.kinds, HasFloatingInput(signature), bytes > kHugeBytes);
  }
  if (MatchForOps(signature) == Match::kTolerance) {
    const int64_t affordable = std::clamp(kDrawnElements / elements, kFewestDraws, kMostDraws);
    plan.draws = std::min((kPool - 1) / smallest, affordable);
    plan.twice = smallest <= kTwice && elements <= kDrawnElements / 4;
    plan.sets_in_doubt = std::clamp(kDrawnElements / elements, kFewestInDoubt, kMostInDoubt);
  }
  if (elements > kFewElements) LimitTurns(&plan);
  return plan;
}

}  // namespace cudaforge
