#include "verify/groups.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

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
constexpr Pattern kPatternTable[] = {
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
static_assert(std::size(kPatternTable) == TruthGroups::kPatterns);

bool IsTruth(const Node& node) {
  const std::string_view name = OpBaseName(node.op);
  return name == "aten::any" || name == "aten::all";
}

// The dimensions that an any() or all() reduces: those its second argument names, else all.
std::vector<bool> ReducedDims(const Node& node, size_t rank) {
  std::vector<int64_t> named;
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

size_t TruthInput(const OpSignature& signature) {
  CF_CHECK(!signature.inputs.empty()) << "a region with inputs";
  auto size = [](const TensorSpec& spec) {
    return std::pair(IsFloating(spec.dtype), spec.numel());
  };
  const auto largest =
      std::max_element(signature.inputs.begin(), signature.inputs.end(),
                       [&](const TensorSpec& a, const TensorSpec& b) { return size(a) < size(b); });
  return static_cast<size_t>(largest - signature.inputs.begin());
}

TruthGroups::TruthGroups(const OpSignature& signature, size_t input)
    : sizes_(signature.inputs[input].sizes), inside_(sizes_.size(), false) {
  if (!inside_.empty()) inside_.back() = true;
  for (const Node& node : signature.nodes) {
    if (!IsTruth(node) || node.args.empty()) continue;
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

double TruthGroups::Value(const std::vector<int64_t>& position, int turn, uint64_t seed) const {
  int64_t group = 0;
  int64_t place = 0;
  for (size_t d = 0; d < sizes_.size(); ++d) {
    int64_t& index = inside_[d] ? place : group;
    index = index * sizes_[d] + position[d];
  }
  const int64_t number = group + turn * count_;
  // Shifted by one in each round, so that no lane of a kernel meets one pattern only.
  const Pattern& pattern = kPatternTable[(number + number / kPatterns) % kPatterns];
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
  return place == other ? pattern.other : pattern.background;
}

}  // namespace cudaforge
