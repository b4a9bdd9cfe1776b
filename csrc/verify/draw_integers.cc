#include "verify/draw_integers.h"

#include "base/random.h"

namespace cudaforge {

using device::DrawForm;
using device::DrawRowKind;

namespace {

using Meaning = InputRole::Kind;

// Valid indices below a limit.
std::vector<DrawRowKind> IndexKinds(DrawRecipe recipe, int64_t limit) {
  const auto one = [&](DrawForm form) { return IntegerRow(form, 0, limit); };
  switch (recipe) {
    case DrawRecipe::kUniform:
      return {one(DrawForm::kDistinct)};
    case DrawRecipe::kRowScales:
      return {one(DrawForm::kNeighbours)};
    case DrawRecipe::kAllEqual:
      return {one(DrawForm::kFirst)};
    case DrawRecipe::kSmallIntegers:
      return {one(DrawForm::kLast)};
    case DrawRecipe::kRowConstant:
      return {one(DrawForm::kSameInRow)};
    case DrawRecipe::kByPosition:
      return {one(DrawForm::kAscending)};
    case DrawRecipe::kLastTenth:
      return {one(DrawForm::kFirstOrLast)};
    case DrawRecipe::kMixed:
    case DrawRecipe::kPackedSpecials:
      return {one(DrawForm::kBelow),     one(DrawForm::kNeighbours), one(DrawForm::kFirst),
              one(DrawForm::kDistinct),  one(DrawForm::kLast),       one(DrawForm::kAscending),
              one(DrawForm::kSameInRow), one(DrawForm::kFirstOrLast)};
    default:
      return {one(DrawForm::kBelow)};
  }
}

std::vector<DrawRowKind> LabelKinds(DrawRecipe recipe, int64_t limit, uint64_t random) {
  const auto one = [&](DrawForm form, int detail = 0) {
    return IntegerRow(form, 0, limit, detail);
  };
  const auto below = static_cast<int64_t>(SplitMix(random).Below(static_cast<uint64_t>(limit)));
  switch (recipe) {
    case DrawRecipe::kNormal:
    case DrawRecipe::kRowScales:
      return {one(DrawForm::kIgnoring, 1)};
    case DrawRecipe::kZerosDenormals:
      return {one(DrawForm::kIgnoring, 2)};
    case DrawRecipe::kAllEqual:
      return {one(DrawForm::kFirst)};
    case DrawRecipe::kSmallIntegers:
      return {one(DrawForm::kLast)};
    case DrawRecipe::kIgnoredLabels:
      return {one(DrawForm::kIgnored)};
    case DrawRecipe::kOneLabel:
      return {IntegerRow(DrawForm::kConstant, below, 1)};
    case DrawRecipe::kByPosition:
      return {one(DrawForm::kAscending)};
    case DrawRecipe::kMixed:
      return {one(DrawForm::kBelow),       one(DrawForm::kIgnoring, 2), one(DrawForm::kFirst),
              one(DrawForm::kIgnored),     one(DrawForm::kLast),        one(DrawForm::kNeighbours),
              one(DrawForm::kIgnoring, 1), one(DrawForm::kFirstOrLast)};
    default:
      return {one(DrawForm::kBelow)};
  }
}

// Different numbers that float32 rounds to the same value (int64: float64 too).
DrawRowKind CloseIntegers(DType dtype) {
  const int bits = dtype == DType::kInt64 ? 60 : dtype == DType::kInt32 ? 30 : 5;
  return IntegerRow(DrawForm::kBelow, int64_t{1} << bits, 7);
}

}  // namespace

DrawRowKind IntegerRow(DrawForm form, int64_t low, int64_t range, int detail) {
  return {form, detail, static_cast<double>(range), static_cast<double>(low)};
}

std::vector<DrawRowKind> IntegerKinds(const DrawnInput& input, DrawRecipe recipe, uint64_t random) {
  if (input.role.limit > 0) {
    return input.role.kind == Meaning::kTarget ? LabelKinds(recipe, input.role.limit, random)
                                               : IndexKinds(recipe, input.role.limit);
  }
  const DrawRowKind wide = IntegerRow(DrawForm::kBelow, -(1 << 19), 1 << 20);
  const DrawRowKind any = input.integral ? IntegerRow(DrawForm::kAnyMagnitude, 0, 1) : wide;
  switch (recipe) {
    case DrawRecipe::kAllEqual:
      return {IntegerRow(DrawForm::kConstant, 3, 1)};
    case DrawRecipe::kUniform:
      return {IntegerRow(DrawForm::kBelow, 0, 2)};
    case DrawRecipe::kRowScales:
      return {any};
    case DrawRecipe::kRowConstant:
      return {IntegerRow(DrawForm::kSameInRow, -3, 7)};
    case DrawRecipe::kByPosition:
      return {IntegerRow(DrawForm::kAscending, -500, 1000)};
    case DrawRecipe::kNextAbove:
      return {CloseIntegers(input.spec->dtype)};
    case DrawRecipe::kMeeting:
      if (!input.alone && !input.integral) return {wide};
      return {{DrawForm::kListed, 0, 0, 0}, IntegerRow(DrawForm::kAnyMagnitude, 0, 1)};
    case DrawRecipe::kMixed:
      return {wide,
              any,
              IntegerRow(DrawForm::kNeighbours, -3, 7),
              IntegerRow(DrawForm::kBelow, -3, 7),
              IntegerRow(DrawForm::kFirstOrLast, -(1 << 19), 1 << 20),
              any,
              IntegerRow(DrawForm::kSameInRow, -100, 201),
              IntegerRow(DrawForm::kBelow, 0, 2)};
    default:
      return {IntegerRow(DrawForm::kBelow, -3, 7)};
  }
}

std::vector<DrawRowKind> BooleanKinds(const DrawnInput& input, DrawRecipe recipe) {
  if (input.role.kind == Meaning::kMask) return {{DrawForm::kMaskBits, 0, 2, 0}};
  const auto one = [](DrawForm form) { return IntegerRow(form, 0, 2); };
  switch (recipe) {
    case DrawRecipe::kAllEqual:
      return {one(DrawForm::kLast)};
    case DrawRecipe::kZerosDenormals:
      return {one(DrawForm::kFirst)};
    case DrawRecipe::kRowScales:
      return {one(DrawForm::kMost), one(DrawForm::kFew)};
    case DrawRecipe::kRowConstant:
      return {one(DrawForm::kSameInRow)};
    case DrawRecipe::kMixed:
    case DrawRecipe::kPackedSpecials:
      return {one(DrawForm::kBelow),     one(DrawForm::kFew),       one(DrawForm::kFirst),
              one(DrawForm::kMost),      one(DrawForm::kLast),      one(DrawForm::kFirstOrLast),
              one(DrawForm::kSameInRow), one(DrawForm::kNeighbours)};
    default:
      return {one(DrawForm::kBelow)};
  }
}

}  // namespace cudaforge
