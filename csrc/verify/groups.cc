#include "verify/groups.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "base/random.h"
#include "signature/op_facts.h"
#include "signature/roles.h"
#include "verify/elements.h"

namespace cudaforge {
namespace {

constexpr double kLarge = 64;  // beyond what the other inputs hold: comparisons with them are sure

enum class Place { kNowhere, kLast, kFirst, kInside };

struct Pattern {
  double background;
  Place place;
  double other;
};

// The first tell most: few groups, or large inputs, get no further.
constexpr Pattern kTruthPatterns[] = {
    {0, Place::kNowhere, 0},
    {kLarge, Place::kLast, 0},
    {0, Place::kLast, kLarge},
    {-kLarge, Place::kLast, kLarge},
    {kLarge, Place::kLast, -kLarge},
    {kLarge, Place::kNowhere, 0},
    {0, Place::kFirst, -kLarge},
    {kLarge, Place::kFirst, 0},
    {-kLarge, Place::kNowhere, 0},
    {0, Place::kInside, kLarge},
    {kLarge, Place::kInside, 0},
    {-kLarge, Place::kFirst, kLarge},
    {kLarge, Place::kInside, -kLarge},
    {-kLarge, Place::kInside, kLarge},
    {0, Place::kInside, std::numeric_limits<double>::quiet_NaN()},
    {kLarge, Place::kFirst, -kLarge},
};

constexpr double kEndless = std::numeric_limits<double>::infinity();
constexpr double kLowest = -std::numeric_limits<double>::max();  // the dtype's own in its place
// Not one element of ordinary size beside -infinity alone, which other sets have.
constexpr Pattern kExtremePatterns[] = {
    {kLowest, Place::kNowhere, 0},       {-kEndless, Place::kNowhere, 0},
    {-kEndless, Place::kLast, kLowest},  {kLowest, Place::kInside, -1},
    {-kEndless, Place::kFirst, kLowest}, {kLowest, Place::kFirst, -kEndless},
};

// Each value is met at each kind of place before a pattern comes again: the counts have no common
// divisor.
constexpr double kSpecialValues[] = {kEndless, -kEndless, std::numeric_limits<double>::quiet_NaN()};
constexpr int64_t kSpecialPlaces = 8;
constexpr int64_t kLoopSteps[] = {8, 16, 32, 64};

// Each of kExtremePatterns is followed by its opposite: the region may negate what it reduces.
int64_t PatternCount(DecidingGroups::Kind kind) {
  switch (kind) {
    case DecidingGroups::Kind::kTruths:
      return std::ssize(kTruthPatterns);
    case DecidingGroups::Kind::kExtremes:
      return 2 * std::ssize(kExtremePatterns);
    case DecidingGroups::Kind::kSpecials:
      return std::ssize(kSpecialValues) * kSpecialPlaces;
  }
  return 1;
}

bool AreSingleNumbers(const OpSignature& signature) {
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    if (signature.output_spec(o).numel() > 1) return false;
  }
  return true;
}

bool Decides(const OpFacts& facts, DecidingGroups::Kind kind) {
  switch (kind) {
    case DecidingGroups::Kind::kTruths:
      return facts.is_truth;
    case DecidingGroups::Kind::kExtremes:
      return facts.extreme != 0;
    case DecidingGroups::Kind::kSpecials:
      return !facts.backward &&
             (facts.needs == OpNeeds::kAxes || facts.needs == OpNeeds::kTrailing ||
              facts.needs == OpNeeds::kGroup);
  }
  return false;
}

// By dimension, how many neighbours such an operation takes together.
std::vector<int64_t> TakenTogether(const Node& node, const std::vector<int64_t>& sizes) {
  const size_t rank = sizes.size();
  const OpFacts& facts = FactsOf(node.op);
  std::vector<int64_t> together = sizes;
  const auto at = static_cast<size_t>(std::max(facts.axes, 0));
  const Json* axes = facts.axes >= 0 && at < node.args.size() ? &node.args[at] : nullptr;
  if (facts.needs == OpNeeds::kWindow) {
    for (size_t d = 0; d + 2 < rank && d < 2; ++d) together[d] = 1;
    return together;
  }
  if (facts.needs == OpNeeds::kTrailing) {
    const size_t inside = axes == nullptr ? 0 : axes->size();
    for (size_t d = 0; d + inside < rank; ++d) together[d] = 1;
    return together;
  }
  if (facts.needs == OpNeeds::kGroup) {
    const bool has_groups = axes != nullptr && axes->is_number_integer();
    const int64_t groups = has_groups ? axes->get<int64_t>() : 1;
    if (rank > 0) together[0] = 1;
    if (rank > 1 && groups > 0) together[1] = std::max<int64_t>(sizes[1] / groups, 1);
    return together;
  }
  std::vector<int64_t> named;
  if (axes != nullptr && axes->is_number_integer()) {
    named.push_back(axes->get<int64_t>());
  } else if (axes != nullptr && axes->is_array()) {
    for (const Json& dim : *axes) {
      if (dim.is_number_integer()) named.push_back(dim.get<int64_t>());
    }
  }
  if (named.empty()) return together;
  together.assign(rank, 1);
  for (int64_t dim : named) {
    if (dim < 0) dim += static_cast<int64_t>(rank);
    const auto d = static_cast<size_t>(dim);
    if (dim >= 0 && d < rank) together[d] = sizes[d];
  }
  return together;
}

// A place of a group of so many elements, of the kinds that DecidingGroups::Value names.
int64_t SpecialPlace(int64_t number, int64_t length, uint64_t seed) {
  const int64_t round = number / kSpecialPlaces;
  const int64_t step = kLoopSteps[round % std::ssize(kLoopSteps)];
  // Where the last step begins, then the second.
  const int64_t begin = round / 3 % 2 == 0 ? (length - 1) / step * step : step;
  int64_t place = 0;
  switch (number % kSpecialPlaces) {
    case 0:
      place = length - 1;
      break;
    case 1:
      place = 0;
      break;
    case 2:
      place = length - 2;
      break;
    case 3:
      place = length / 2;
      break;
    case 4:
      place = length / 2 - 1;
      break;
    case 5:
      place = begin;
      break;
    case 6:
      place = begin - 1;
      break;
    default:
      place = static_cast<int64_t>(
          SplitMix(seed + static_cast<uint64_t>(number)).Below(static_cast<uint64_t>(length)));
      break;
  }
  return std::clamp<int64_t>(place, 0, length - 1);
}

}  // namespace

bool HasTruths(const OpSignature& signature) {
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    if (signature.output_spec(o).dtype == DType::kBool) return true;
  }
  return std::any_of(signature.nodes.begin(), signature.nodes.end(),
                     [](const Node& node) { return FactsOf(node.op).is_truth; });
}

int ExtremesOf(const OpSignature& signature) {
  bool maxima = false, minima = false;
  for (const Node& node : signature.nodes) {
    const OpFacts& facts = FactsOf(node.op);
    if (facts.extreme == 0 && !facts.tame) return 0;
    maxima = maxima || facts.extreme > 0;
    minima = minima || facts.extreme < 0;
  }
  if (signature.inputs.empty() || !IsFloating(signature.inputs[DecidingInput(signature)].dtype)) {
    return 0;
  }
  return maxima == minima ? 0 : maxima ? 1 : -1;
}

size_t DecidingInput(const OpSignature& signature) {
  CF_CHECK(!signature.inputs.empty()) << "a region with inputs";
  auto size = [](const TensorSpec& spec) {
    return std::pair(IsFloating(spec.dtype), spec.numel());
  };
  const auto largest =
      std::max_element(signature.inputs.begin(), signature.inputs.end(),
                       [&](const TensorSpec& a, const TensorSpec& b) { return size(a) < size(b); });
  return static_cast<size_t>(largest - signature.inputs.begin());
}

DecidingGroups::DecidingGroups(const OpSignature& signature, size_t input, Kind kind, int64_t share,
                               int64_t shares)
    : kind_(kind),
      share_(share),
      shares_(shares),
      sizes_(signature.inputs[input].sizes),
      inner_(sizes_.size(), 1) {
  if (kind == Kind::kExtremes) {
    sign_ = ExtremesOf(signature);
    largest_ = LargestFinite(signature.inputs[input].dtype);
  }
  if (!inner_.empty()) inner_.back() = sizes_.back();
  for (const Node& node : signature.nodes) {
    if (!Decides(FactsOf(node.op), kind) || node.args.empty()) continue;
    const TensorSpec* operand = signature.SpecOf(node.args[0]);
    if (operand == nullptr || operand->sizes != sizes_) continue;
    inner_ = TakenTogether(node, sizes_);
    break;
  }
  if (kind == Kind::kSpecials && AreSingleNumbers(signature)) inner_ = sizes_;
  for (size_t d = 0; d < sizes_.size(); ++d) {
    if (signature.inputs[input].strides[d] == 0) sizes_[d] = std::min<int64_t>(sizes_[d], 1);
    inner_[d] = std::clamp<int64_t>(inner_[d], 1, std::max<int64_t>(sizes_[d], 1));
    length_ *= inner_[d];
    count_ *= sizes_[d] / inner_[d];
  }
}

int64_t DecidingGroups::turns() const {
  const int64_t groups = std::max<int64_t>(count_ / shares_, 1);
  return (PatternCount(kind_) + groups - 1) / groups;
}

double DecidingGroups::SpecialAt(int64_t number, int64_t place, uint64_t seed) const {
  if (place != SpecialPlace(number, length_, seed)) return 0;
  return kSpecialValues[number % std::ssize(kSpecialValues)];
}

double DecidingGroups::Value(const std::vector<int64_t>& position, int turn, uint64_t seed) const {
  int64_t group = 0;
  int64_t place = 0;
  for (size_t d = 0; d < sizes_.size(); ++d) {
    group = group * (sizes_[d] / inner_[d]) + position[d] / inner_[d];
    place = place * inner_[d] + position[d] % inner_[d];
  }
  if ((group + turn) % shares_ != share_) return 0;
  const int64_t number = group / shares_ + turn * std::max<int64_t>(count_ / shares_, 1);
  // Shifted by one in each round, so that no lane of a kernel meets one pattern only.
  const int64_t period = PatternCount(kind_);
  const int64_t shifted = number + number / period;
  if (kind_ == Kind::kSpecials) return SpecialAt(shifted, place, seed);
  const auto chosen = static_cast<size_t>(shifted % period);
  const bool truths = kind_ == Kind::kTruths;
  const Pattern& pattern = truths ? kTruthPatterns[chosen] : kExtremePatterns[chosen / 2];
  int64_t other = -1;
  switch (pattern.place) {
    case Place::kNowhere:
      break;
    case Place::kLast:
      other = length_ - 1;
      break;
    case Place::kFirst:
      other = 0;
      break;
    case Place::kInside:
      other = static_cast<int64_t>(
          SplitMix(seed + static_cast<uint64_t>(group)).Below(static_cast<uint64_t>(length_)));
      break;
  }
  const double value = place == other ? pattern.other : pattern.background;
  if (truths) return value;
  const int sign = chosen % 2 == 0 ? sign_ : -sign_;
  return sign * (std::isfinite(value) ? std::max(value, -largest_) : value);
}

}  // namespace cudaforge
