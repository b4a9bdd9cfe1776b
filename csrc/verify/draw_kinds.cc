#include "verify/draw_kinds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "verify/device/draw_forms.h"
#include "verify/draw_integers.h"
#include "verify/draw_lists.h"
#include "verify/elements.h"

namespace cudaforge {
namespace {

using device::DrawForm;
using device::DrawnTensor;
using device::DrawRowKind;
using device::SpecialKind;
using Kinds = std::vector<DrawRowKind>;
using Role = InputRole::Kind;

DrawRowKind NormalRow(double scale = 1, double shift = 0) {
  return {DrawForm::kNormal, 0, scale * device::NormalUnit(), shift};
}
DrawRowKind ScaledRow(DrawForm form, double scale = 1, double shift = 0) {
  return {form, 0, scale * device::NormalUnit(), shift};
}
DrawRowKind UniformRow(double scale, double shift) { return {DrawForm::kUniform, 0, scale, shift}; }
DrawRowKind SpecialRow(SpecialKind kind) {
  return {DrawForm::kManySpecial, static_cast<int>(kind), device::NormalUnit(), 0};
}

DrawRowKind WholeNumbers(double low, double range) { return {DrawForm::kIntegers, 0, range, low}; }

bool IsOfAttention(Role role) {
  return role == Role::kQuery || role == Role::kKey || role == Role::kSeen || role == Role::kFinite;
}

Kinds ScaledRows(const DrawnInput& input) {
  // Attention's scores are exponents. Large ones would show rounding errors, not keys.
  const bool narrow = input.spec->dtype == DType::kFloat16 || IsOfAttention(input.role.kind);
  Kinds kinds;
  for (const int exponent : {0, -30, 20, -10, 30, -20, 10, -60, 60, 90}) {
    if (std::abs(exponent) > 30 && (narrow || !input.far)) continue;
    kinds.push_back(NormalRow(std::ldexp(1.0, narrow ? exponent / 4 : exponent)));
  }
  return kinds;
}

Kinds SpecialRows(Role role) {
  if (role == Role::kQuery)
    return {NormalRow(), NormalRow(), SpecialRow(SpecialKind::kNan), NormalRow()};
  if (role != Role::kValue) return {NormalRow()};
  return {NormalRow(),
          NormalRow(),
          SpecialRow(SpecialKind::kNan),
          NormalRow(),
          SpecialRow(SpecialKind::kPlus),
          SpecialRow(SpecialKind::kMinus),
          NormalRow(),
          SpecialRow(SpecialKind::kEither),
          NormalRow(),
          NormalRow(),
          SpecialRow(SpecialKind::kAll)};
}

Kinds ZerosDenormals(const DrawnInput& input) {
  // Kernels may round a weight's products of denormals in different orders.
  if (input.role.kind == Role::kWeight) return {ScaledRow(DrawForm::kSomeZeros)};
  if (!input.large) return {ScaledRow(DrawForm::kSomeZeros), ScaledRow(DrawForm::kSomeDenormals)};
  return {NormalRow(),
          ScaledRow(DrawForm::kSomeZeros),
          {DrawForm::kDenormals, 0, 0, 0},
          ScaledRow(DrawForm::kSomeDenormals),
          {DrawForm::kZeros, 0, 0, 0}};
}

Kinds MixedRows(const DrawnInput& input) {
  const DType dtype = input.spec->dtype;
  if (IsOfAttention(input.role.kind)) {
    return {NormalRow(),
            NormalRow(2),
            UniformRow(1, 0),
            ScaledRow(DrawForm::kSparse),
            NormalRow(0x1p-10),
            ScaledRow(DrawForm::kCancelling, 4),
            ScaledRow(DrawForm::kFirstLarge, 0x1p-6, 16),
            ScaledRow(DrawForm::kLastTenth, 0x1p-7)};
  }
  // E[x^2] - E[x]^2 loses all precision there.
  const double far = dtype == DType::kFloat32 || dtype == DType::kFloat64 ? 1000 : 60;
  return {ScaledRow(DrawForm::kAlike, 4),
          ScaledRow(DrawForm::kAlike, 4),
          NormalRow(1, 3 * far),
          ScaledRow(DrawForm::kCancelling, 64),
          ScaledRow(DrawForm::kSparse),
          NormalRow(0x1p-10),
          ScaledRow(DrawForm::kFirstLarge, 0x1p-6, 256),
          ScaledRow(DrawForm::kLastTenth, 0x1p-6),
          {DrawForm::kRowConstant, 0, 0, 0},
          UniformRow(1, 0),
          ScaledRow(DrawForm::kPosition, 0.125),
          NormalRow(1, -far),
          ScaledRow(DrawForm::kWide),
          WholeNumbers(-3, 7),
          {DrawForm::kMagnitude, 0, 0, 0},
          {DrawForm::kOneHot, 0, 0, 0}};
}

// All exponents of the dtype, except the largest if sums or products with small numbers would
// overflow in only some orders.
DrawRowKind AnyExponent(const DrawnInput& input) {
  const int spared = input.bears_largest ? 0 : 7;
  switch (input.spec->dtype) {
    case DType::kFloat16:
      return {DrawForm::kAnyExponent, 0, input.bears_largest ? 41.0 : 38.0, 127.0 - 25};
    case DType::kFloat64:
      return {DrawForm::kAnyExponent, 0, 2047.0 - 8 * spared, 0};
    default:
      return {DrawForm::kAnyExponent, 0, 255.0 - spared, 0};
  }
}

Kinds MeetingRows(const DrawnInput& input) {
  // A small operand must contain every number of the list.
  const DrawRowKind listed = {DrawForm::kListed, input.large ? 0 : 1, 0, 0};
  if (!input.alone) return {listed};
  if (input.operands > 1) return {listed, AnyExponent(input)};
  // The range of exponentials.
  const DType dtype = input.spec->dtype;
  const double end = dtype == DType::kFloat16 ? 18 : dtype == DType::kFloat64 ? 750 : 110;
  return {listed, AnyExponent(input), UniformRow(2 * end, -end), WholeNumbers(-31.5, 64)};
}

Kinds RowsNextAbove(const DrawnInput& input) {
  const DType dtype = input.spec->dtype;
  return {{DrawForm::kNextAbove,
           dtype == DType::kFloat16    ? 13
           : dtype == DType::kBFloat16 ? 16
                                       : 0,
           0, 0}};
}

Kinds PackedSpecials(const DrawnInput& input) {
  const DrawRowKind magnitude = {DrawForm::kMagnitude, 0, 0, 0};
  if (!input.large) return {input.product ? ScaledRow(DrawForm::kSomeZeros) : NormalRow()};
  if (input.role.kind != Role::kValue) return SpecialRows(input.role.kind);
  return {magnitude,
          ScaledRow(DrawForm::kSomeZeros),
          SpecialRow(SpecialKind::kNan),
          magnitude,
          {DrawForm::kDenormals, 0, 0, 0},
          SpecialRow(SpecialKind::kEither),
          magnitude,
          NormalRow(),
          ScaledRow(DrawForm::kSomeDenormals),
          SpecialRow(SpecialKind::kPlus),
          magnitude,
          {DrawForm::kZeros, 0, 0, 0},
          SpecialRow(SpecialKind::kMinus),
          NormalRow(),
          magnitude,
          SpecialRow(SpecialKind::kAll)};
}

// One size per set: with channels of very different scales, cancellation in one channel is as large
// as the values in others, and correct kernels err more than usual.
DrawRowKind VarianceRow(const DrawnInput& input, DrawRecipe recipe) {
  double size = 1;
  if (recipe == DrawRecipe::kMixed) size = 0x1p-10;
  if (recipe == DrawRecipe::kByPosition) size = 0x1p15;
  if (recipe == DrawRecipe::kPackedSpecials && input.bears_zero) size = 0x1p-40;
  if (recipe == DrawRecipe::kSmallIntegers && input.bears_zero) size = 0;
  return UniformRow(1.5 * size, 0.5 * size);
}

// Kinds for roles with a restricted range.
Kinds RangedKinds(const DrawnInput& input, DrawRecipe recipe, bool* ranged) {
  const DType dtype = input.spec->dtype;
  const double near = dtype == DType::kFloat16    ? 0x1p-11
                      : dtype == DType::kBFloat16 ? 0x1p-8
                                                  : 0x1p-22;
  const bool edges = recipe == DrawRecipe::kZerosDenormals || recipe == DrawRecipe::kPackedSpecials;
  const auto with_edges = [&](DrawRowKind inside, int detail) -> Kinds {
    if (!edges) return {inside};
    return {inside, {DrawForm::kNearEdges, detail, near, 0}};
  };
  *ranged = true;
  switch (input.role.kind) {
    case Role::kPositive:
      if (input.variance) return {VarianceRow(input, recipe)};
      return {UniformRow(1.5, 0.5)};
    case Role::kProbability:
      return with_edges(UniformRow(0.99, 0x1p-8), 0);
    case Role::kLogProbability:
      return with_edges(UniformRow(-8, -0x1p-8), 2);
    case Role::kTanh:
      return with_edges(UniformRow(1.98, -0.99), 1);
    case Role::kMask:
      return {{DrawForm::kMask, 0, LargestFinite(dtype), 0}};
    default:
      *ranged = false;
      return {};
  }
}

Kinds FloatingKinds(const DrawnInput& input, DrawRecipe recipe) {
  bool ranged = false;
  Kinds kinds = RangedKinds(input, recipe, &ranged);
  if (ranged) return kinds;
  const auto of_large = [&](DrawRowKind kind) -> Kinds {
    return {input.large ? kind : NormalRow()};
  };
  switch (recipe) {
    case DrawRecipe::kUniform:
      return {UniformRow(1, input.positive ? 0x1p-25 : 0)};
    case DrawRecipe::kRowScales:
      return input.large ? ScaledRows(input) : Kinds{NormalRow()};
    case DrawRecipe::kSpecialRows:
      return input.large ? SpecialRows(input.role.kind) : Kinds{NormalRow()};
    case DrawRecipe::kZerosDenormals:
      return ZerosDenormals(input);
    case DrawRecipe::kAllEqual:
      return {{DrawForm::kConstant, 0, 0, 3.75}};
    case DrawRecipe::kMixed:
      return input.large ? MixedRows(input) : Kinds{NormalRow()};
    case DrawRecipe::kSmallIntegers:
      if (!input.large || IsOfAttention(input.role.kind)) return {WholeNumbers(-3, 7)};
      return {WholeNumbers(-3, 7), WholeNumbers(0, 256),    {DrawForm::kOneHot, 0, 0, 0},
              WholeNumbers(-3, 7), WholeNumbers(-128, 256), WholeNumbers(0, 2)};
    case DrawRecipe::kRowConstant:
      return of_large({DrawForm::kRowConstant, 0, 0, 0});
    case DrawRecipe::kByPosition:
      return of_large(ScaledRow(DrawForm::kPosition, 0.125));
    case DrawRecipe::kLastTenth:
      return of_large(ScaledRow(DrawForm::kLastTenth, 0x1p-7));
    case DrawRecipe::kWide:
      if (!input.large) return {NormalRow()};
      return {ScaledRow(DrawForm::kWide), ScaledRow(DrawForm::kAlike), ScaledRow(DrawForm::kAlike),
              ScaledRow(DrawForm::kAlike)};
    case DrawRecipe::kOneSpecial:
      if (!input.product) return {{DrawForm::kMagnitude, 0, 0, 0}};
      if (!input.large) return {ScaledRow(DrawForm::kSomeZeros)};
      return {{DrawForm::kMagnitude, 0, 0, 0}, ScaledRow(DrawForm::kSomeZeros)};
    case DrawRecipe::kPackedSpecials:
      return PackedSpecials(input);
    case DrawRecipe::kMeeting:
      // Too few elements for all pairs: special values would ruin all results.
      return input.spec->numel() < 8 ? Kinds{NormalRow()} : MeetingRows(input);
    case DrawRecipe::kNextAbove:
      return input.large ? RowsNextAbove(input) : Kinds{NormalRow()};
    case DrawRecipe::kNanOperands:
    case DrawRecipe::kInfiniteOperands:
      // Avoids zero times NaN or infinity of the smaller operand.
      return of_large(input.role.kind == Role::kValue ? ScaledRow(DrawForm::kSomeZeros)
                                                      : NormalRow());
    default:
      return {NormalRow()};
  }
}

// Returns true if elements of this kind are the same function of their random bits in every row.
bool IsSameEverywhere(DrawForm form) {
  switch (form) {
    case DrawForm::kNormal:
    case DrawForm::kUniform:
    case DrawForm::kMagnitude:
    case DrawForm::kIntegers:
    case DrawForm::kConstant:
    case DrawForm::kSparse:
    case DrawForm::kWide:
    case DrawForm::kSomeZeros:
    case DrawForm::kBelow:
      return true;
    default:
      return false;
  }
}

}  // namespace

void SetKinds(const DrawnInput& input, DrawRecipe recipe, uint64_t random, uint64_t shared,
              DrawnTensor* tensor) {
  const DType dtype = input.spec->dtype;
  if (recipe == DrawRecipe::kMeeting && input.role.kind == Role::kValue && dtype != DType::kBool) {
    SetMeetingList(input, shared, tensor);
  }
  const Kinds kinds = IsFloating(dtype)       ? FloatingKinds(input, recipe)
                      : dtype == DType::kBool ? BooleanKinds(input, recipe)
                                              : IntegerKinds(input, recipe, random);
  for (size_t k = 0; k < device::kDrawKinds; ++k) tensor->kinds[k] = kinds[k % kinds.size()];
  tensor->same_kinds = kinds.size() == 1 && IsSameEverywhere(kinds[0].form) ? 1 : 0;
  tensor->denormal_shift = dtype == DType::kBFloat16 ? 16 : 0;
  tensor->gap = IsFloating(dtype)       ? NormalRow()
                : input.role.limit > 0  ? IntegerRow(DrawForm::kBelow, 0, input.role.limit)
                : dtype == DType::kBool ? IntegerRow(DrawForm::kBelow, 0, 2)
                                        : IntegerRow(DrawForm::kBelow, -3, 7);
  tensor->ignore = input.role.ignore_index;
  const int64_t limit = std::max<int64_t>(input.role.limit, 1);
  // Indices below 2^31 times a factor stay below 2^63. Longer tables are read in order.
  tensor->step = 1;
  if (limit > 2 && limit < (int64_t{1} << 31)) {
    SplitMix mix(random);
    do {
      tensor->step = 1 + static_cast<int64_t>(mix.Below(static_cast<uint64_t>(limit - 1)));
    } while (std::gcd(tensor->step, limit) != 1);
  }
  const double most = dtype == DType::kInt32 ? 0x1p31 : 0x1p63;
  for (const int64_t constant : input.constants) {
    if (tensor->constants == device::kDrawConstants) break;
    if (std::fabs(static_cast<double>(constant)) + 1 < most) {
      tensor->constant[tensor->constants++] = constant;
    }
  }
}

}  // namespace cudaforge
