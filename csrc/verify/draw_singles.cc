#include "verify/draw_singles.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include "base/random.h"
#include "verify/device/draw_forms.h"
#include "verify/elements.h"

namespace cudaforge {
namespace {

constexpr double kUnlike = 64;  // beyond other inputs' values: comparisons are certain

}  // namespace

bool TakesSingles(InputRole::Kind role, DrawRecipe recipe) {
  if (role == InputRole::Kind::kWeight || role == InputRole::Kind::kKey)
    return recipe == DrawRecipe::kNanOperands;
  if (role == InputRole::Kind::kQuery || role == InputRole::Kind::kSeen)
    return recipe == DrawRecipe::kInfiniteOperands;
  return role == InputRole::Kind::kValue;
}

void SetSpots(const DrawnInput& input, DrawRecipe recipe, uint64_t random,
              device::DrawnTensor* tensor) {
  using Role = InputRole::Kind;
  const Role role = input.role.kind;
  const TensorSpec& spec = *input.spec;
  if (recipe != DrawRecipe::kNanOperands && recipe != DrawRecipe::kInfiniteOperands) return;
  if (!IsFloating(spec.dtype) || !TakesSingles(role, recipe) || tensor->elements == 0) return;
  if (input.large && role != Role::kKey && role != Role::kSeen) return;
  const bool nan = recipe == DrawRecipe::kNanOperands || role != Role::kValue;
  SplitMix mix(random);
  const int64_t elements = ElementWalk(spec, /*skip_repeats=*/true).left();
  std::vector<int64_t> strides = spec.strides, sizes = spec.sizes;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (strides[d] == 0) sizes[d] = std::min<int64_t>(sizes[d], 1);
  }
  // A query's NaN hides a value's of the same head, so one is in the first half, the other after.
  int64_t begin = 0, end = elements;
  if (role == Role::kQuery) end = std::max<int64_t>(elements / 2, 1);
  if (role == Role::kSeen) begin = elements / 2;
  const int64_t spots = std::min<int64_t>(4, end - begin);
  for (int64_t s = 0; s < spots; ++s) {
    const int64_t from = begin + (end - begin) * s / spots;
    const int64_t to = begin + (end - begin) * (s + 1) / spots;
    int64_t index = from + static_cast<int64_t>(mix.Below(static_cast<uint64_t>(to - from)));
    // The first element in one set, the last in the other.
    if (s == 0 && recipe == DrawRecipe::kInfiniteOperands) index = from;
    if (s == spots - 1 && recipe == DrawRecipe::kNanOperands) index = to - 1;
    int64_t offset = 0;
    const std::vector<int64_t> position = Unflatten(sizes, index);
    for (size_t d = 0; d < sizes.size(); ++d) offset += position[d] * strides[d];
    const auto kind = nan          ? device::SpecialKind::kNan
                      : s % 2 == 0 ? device::SpecialKind::kPlus
                                   : device::SpecialKind::kMinus;
    const auto which = static_cast<uint32_t>(s) << 5;
    tensor->spot[tensor->spots++] = {offset, spec.dtype == DType::kFloat64
                                                 ? device::SpecialBits<double>(kind, which)
                                                 : device::SpecialBits<float>(kind, which)};
  }
}

void SetPatterns(DType dtype, int sign, uint64_t random, device::DrawnTensor* tensor) {
  using device::DrawPattern;
  using device::DrawPlace;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<DrawPattern> patterns;
  size_t first_ones = 8;
  if (sign == 0) {
    patterns = {{0, 0, DrawPlace::kNowhere, 0},
                {kUnlike, 0, DrawPlace::kLast, 0},
                {0, kUnlike, DrawPlace::kLast, 0},
                {-kUnlike, kUnlike, DrawPlace::kLast, 0},
                {kUnlike, -kUnlike, DrawPlace::kLast, 0},
                {kUnlike, 0, DrawPlace::kNowhere, 0},
                {0, -kUnlike, DrawPlace::kFirst, 0},
                {kUnlike, 0, DrawPlace::kFirst, 0},
                {-kUnlike, 0, DrawPlace::kNowhere, 0},
                {0, kUnlike, DrawPlace::kInside, 0},
                {kUnlike, 0, DrawPlace::kInside, 0},
                {-kUnlike, kUnlike, DrawPlace::kFirst, 0},
                {kUnlike, -kUnlike, DrawPlace::kInside, 0},
                {-kUnlike, kUnlike, DrawPlace::kInside, 0},
                {0, kNan, DrawPlace::kInside, 0},
                {kUnlike, -kUnlike, DrawPlace::kFirst, 0}};
  } else {
    const double lowest = -LargestFinite(dtype);
    // Each is followed by its opposite, because the region may negate what it reduces.
    for (const DrawPattern& pattern :
         std::initializer_list<DrawPattern>{{lowest, 0, DrawPlace::kNowhere, 0},
                                            {-kInfinity, 0, DrawPlace::kNowhere, 0},
                                            {-kInfinity, lowest, DrawPlace::kLast, 0},
                                            {lowest, -1, DrawPlace::kInside, 0},
                                            {-kInfinity, lowest, DrawPlace::kFirst, 0},
                                            {lowest, -kInfinity, DrawPlace::kFirst, 0},
                                            {-kInfinity, lowest, DrawPlace::kInside, 0},
                                            {lowest, -1, DrawPlace::kLast, 0}}) {
      patterns.push_back({sign * pattern.background, sign * pattern.other, pattern.place, 0});
      patterns.push_back({-sign * pattern.background, -sign * pattern.other, pattern.place, 0});
    }
    first_ones = 4;
  }
  // Which group has which pattern is secret. For few groups, the most useful patterns come first.
  SplitMix mix(random);
  const auto shuffle = [&](size_t begin, size_t end) {
    for (size_t i = end; i-- > begin + 1;) {
      std::swap(patterns[i], patterns[begin + mix.Below(i - begin + 1)]);
    }
  };
  shuffle(0, first_ones);
  shuffle(first_ones, patterns.size());
  std::copy(patterns.begin(), patterns.end(), tensor->patterns);
  tensor->singles = device::DrawSingles::kPatterns;
  tensor->same_kinds = 0;
}

}  // namespace cudaforge
