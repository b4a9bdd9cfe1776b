#include "verify/groups.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "verify/elements.h"
#include "verify/random.h"
#include "verify/roles.h"

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

// Each of kExtremePatterns is followed by its opposite: the region may negate what it reduces.
int64_t PatternCount(DecidingGroups::Kind kind) {
  if (kind == DecidingGroups::Kind::kTruths) return std::ssize(kTruthPatterns);
  return 2 * std::ssize(kExtremePatterns);
}

constexpr std::string_view kMaxima[] = {
    "aten::_log_softmax",
    "aten::_safe_softmax",
    "aten::_softmax",
    "aten::amax",
    "aten::argmax",
    "aten::cummax",
    "aten::logsumexp",
    "aten::max",
    "aten::max_pool2d_with_indices",
    "aten::max_pool3d_with_indices",
};
constexpr std::string_view kMinima[] = {"aten::amin", "aten::argmin", "aten::cummin", "aten::min"};
// Element by element, or making what masks are made of, and harmless with numbers so far out.
// Beside others (powers, roots, logarithms, remainders, sines, backward functions) the set is left
// out.
constexpr std::string_view kElementwise[] = {
    "aten::_to_copy",
    "aten::abs",
    "aten::add",
    "aten::bitwise_and",
    "aten::bitwise_not",
    "aten::bitwise_or",
    "aten::bitwise_xor",
    "aten::ceil",
    "aten::clamp",
    "aten::clamp_max",
    "aten::clamp_min",
    "aten::clone",
    "aten::div",
    "aten::elu",
    "aten::eq",
    "aten::erf",
    "aten::exp",
    "aten::exp2",
    "aten::expm1",
    "aten::floor",
    "aten::full",
    "aten::full_like",
    "aten::ge",
    "aten::gelu",
    "aten::gt",
    "aten::hardsigmoid",
    "aten::hardswish",
    "aten::hardtanh",
    "aten::isinf",
    "aten::isnan",
    "aten::le",
    "aten::leaky_relu",
    "aten::logical_and",
    "aten::logical_not",
    "aten::logical_or",
    "aten::logical_xor",
    "aten::lt",
    "aten::masked_fill",
    "aten::maximum",
    "aten::minimum",
    "aten::mul",
    "aten::ne",
    "aten::neg",
    "aten::ones_like",
    "aten::reciprocal",
    "aten::relu",
    "aten::round",
    "aten::rsub",
    "aten::scalar_tensor",
    "aten::sigmoid",
    "aten::sign",
    "aten::silu",
    "aten::softplus",
    "aten::square",
    "aten::sub",
    "aten::tanh",
    "aten::trunc",
    "aten::where",
    "aten::zeros_like",
};

bool IsNamed(std::span<const std::string_view> names, const Node& node) {
  return std::find(names.begin(), names.end(), OpBaseName(node.op)) != names.end();
}

bool IsTruth(const Node& node) {
  const std::string_view name = OpBaseName(node.op);
  return name == "aten::any" || name == "aten::all";
}

bool Decides(const Node& node, DecidingGroups::Kind kind) {
  if (kind == DecidingGroups::Kind::kTruths) return IsTruth(node);
  return IsNamed(kMaxima, node) || IsNamed(kMinima, node);
}

// The dimensions that such an operation reduces: those its second argument names, else all.
std::vector<bool> ReducedDims(const Node& node, size_t rank) {
  std::vector<int64_t> named;
  if (OpBaseName(node.op).starts_with("aten::max_pool")) {
    std::vector<bool> planes(rank, true);
    for (size_t d = 0; d + 2 < rank && d < 2; ++d) planes[d] = false;
    return planes;
  }
  if (node.args.size() > 1 && node.args[1].is_number_integer()) {
    named.push_back(node.args[1].get<int64_t>());
  } else if (node.args.size() > 1 && node.args[1].is_array()) {
    for (const Json& dim : node.args[1]) {
      if (dim.is_number_integer()) named.push_back(dim.get<int64_t>());
    }
  }
  std::vector<bool> reduced(rank, named.empty());
  for (int64_t dim : named) {
    if (dim < 0) dim += static_cast<int64_t>(rank);
    if (dim >= 0 && dim < static_cast<int64_t>(rank)) reduced[static_cast<size_t>(dim)] = true;
  }
  return reduced;
}

}  // namespace

bool HasTruths(const OpSignature& signature) {
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    if (signature.output_spec(o).dtype == DType::kBool) return true;
  }
  return std::any_of(signature.nodes.begin(), signature.nodes.end(), IsTruth);
}

int ExtremesOf(const OpSignature& signature) {
  bool maxima = false, minima = false;
  for (const Node& node : signature.nodes) {
    const bool maximum = IsNamed(kMaxima, node), minimum = IsNamed(kMinima, node);
    if (!maximum && !minimum && !IsNamed(kElementwise, node)) return 0;
    maxima = maxima || maximum;
    minima = minima || minimum;
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

DecidingGroups::DecidingGroups(const OpSignature& signature, size_t input, Kind kind)
    : kind_(kind), sizes_(signature.inputs[input].sizes), inside_(sizes_.size(), false) {
  if (kind == Kind::kExtremes) {
    sign_ = ExtremesOf(signature);
    largest_ = LargestFinite(signature.inputs[input].dtype);
  }
  if (!inside_.empty()) inside_.back() = true;
  for (const Node& node : signature.nodes) {
    if (!Decides(node, kind) || node.args.empty()) continue;
    const TensorSpec* operand = signature.SpecOf(node.args[0]);
    if (operand == nullptr || operand->sizes != sizes_) continue;
    inside_ = ReducedDims(node, sizes_.size());
    break;
  }
  for (size_t d = 0; d < sizes_.size(); ++d) {
    if (signature.inputs[input].strides[d] == 0) sizes_[d] = std::min<int64_t>(sizes_[d], 1);
    (inside_[d] ? length_ : count_) *= sizes_[d];
  }
}

int64_t DecidingGroups::turns() const {
  const int64_t groups = std::max<int64_t>(count_, 1);
  return (PatternCount(kind_) + groups - 1) / groups;
}

double DecidingGroups::Value(const std::vector<int64_t>& position, int turn, uint64_t seed) const {
  int64_t group = 0;
  int64_t place = 0;
  for (size_t d = 0; d < sizes_.size(); ++d) {
    int64_t& index = inside_[d] ? place : group;
    index = index * sizes_[d] + position[d];
  }
  const int64_t number = group + turn * count_;
  // Shifted by one in each round, so that no lane of a kernel meets one pattern only.
  const int64_t period = PatternCount(kind_);
  const auto chosen = static_cast<size_t>((number + number / period) % period);
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
