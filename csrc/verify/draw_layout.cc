#include "verify/draw_layout.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "signature/op_facts.h"

namespace cudaforge {
namespace {

using device::DrawDim;
using device::DrawnTensor;
using device::DrawType;

constexpr int64_t kManyGroups = 16;
constexpr int64_t kShortestRow = 8;  // of a group that is split

bool GivesSingleNumbers(const OpSignature& signature) {
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    if (signature.output_spec(o).numel() > 1) return false;
  }
  return true;
}

bool IsFor(const OpFacts& facts, GroupPurpose groups) {
  switch (groups) {
    case GroupPurpose::kTruths:
      return facts.is_truth;
    case GroupPurpose::kExtremes:
      return facts.extreme != 0;
    case GroupPurpose::kAll:
      return !facts.backward &&
             (facts.needs == OpNeeds::kAxes || facts.needs == OpNeeds::kTrailing ||
              facts.needs == OpNeeds::kGroup || facts.needs == OpNeeds::kChannel);
  }
  return false;
}

// By dimension, how many neighbours of the first operand the operation reduces.
std::vector<int64_t> ByOperation(const Node& node, const std::vector<int64_t>& sizes) {
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
  if (facts.needs == OpNeeds::kChannel) {
    if (rank > 1) together[1] = 1;
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

// Returns true if input `i` is a right operand of a product, whose sums run along its second-last
// dimension.
bool IsSummedAlongColumns(const OpSignature& signature, size_t i) {
  const std::vector<int64_t>& sizes = signature.inputs[i].sizes;
  if (sizes.size() < 2) return false;
  for (const Node& node : signature.nodes) {
    const OpFacts& facts = FactsOf(node.op);
    const auto right = static_cast<size_t>(facts.left) + 1;
    if (facts.work != OpWork::kProduct || facts.needs != OpNeeds::kRowAndColumn) continue;
    if (right >= node.args.size() || node.outputs.empty()) continue;
    if (node.args[right] != Json{{"in", i}}) continue;
    const TensorSpec* left = signature.SpecOf(node.args[right - 1]);
    if (left == nullptr || left->sizes.empty() || node.outputs[0].sizes.empty()) continue;
    return sizes[sizes.size() - 2] == left->sizes.back() &&
           sizes.back() == node.outputs[0].sizes.back();
  }
  return false;
}

// A dimension, before trivial ones are removed.
struct LayoutPart {
  int64_t size, stride;
  bool is_place;
  int64_t step = 0;  // of the group or of the place
};

// The dimensions with more than one element and nonzero stride, with their steps, row-major. A
// dimension with both kinds of steps is split.
std::vector<LayoutPart> LayoutPartsOf(const TensorSpec& spec,
                                      const std::vector<int64_t>& together) {
  std::vector<LayoutPart> parts;
  for (size_t d = 0; d < spec.sizes.size(); ++d) {
    const int64_t size = spec.strides[d] == 0 ? 1 : spec.sizes[d];
    int64_t inner = std::clamp<int64_t>(together[d], 1, std::max<int64_t>(size, 1));
    if (size % inner != 0) inner = size;
    if (size / inner > 1) parts.push_back({size / inner, spec.strides[d] * inner, false});
    if (inner > 1) parts.push_back({inner, spec.strides[d], true});
  }
  int64_t groups = 1, places = 1;
  for (size_t p = parts.size(); p-- > 0;) {
    int64_t& step = parts[p].is_place ? places : groups;
    parts[p].step = step;
    step *= parts[p].size;
  }
  return parts;
}

// Returns true if no two positions have the same offset. REQUIRES: strides descend.
bool IsOneToOne(const std::vector<LayoutPart>& parts) {
  int64_t reach = 0;  // the largest offset of the inner ones
  for (size_t p = parts.size(); p-- > 0;) {
    if (parts[p].stride <= reach) return false;
    reach += (parts[p].size - 1) * parts[p].stride;
  }
  return true;
}

void SetRows(DrawnTensor* tensor) {
  const int64_t groups = tensor->groups;
  int64_t rows = 1;
  if (groups < kManyGroups) {
    rows =
        std::clamp<int64_t>(tensor->length / kShortestRow, 1, (kManyGroups + groups - 1) / groups);
  }
  tensor->row_length = DivisorOf(std::max<int64_t>((tensor->length + rows - 1) / rows, 1));
  const auto row = static_cast<int64_t>(tensor->row_length.value);
  tensor->rows_of_group = std::max<int64_t>((tensor->length + row - 1) / row, 1);
  tensor->tenth = tensor->length - (tensor->length + 9) / 10;
}

}  // namespace

device::Divisor DivisorOf(int64_t value) {
  CF_CHECK(value > 0) << "a divisor";
  return {static_cast<uint64_t>(value), ~uint64_t{0} / static_cast<uint64_t>(value)};
}

bool DecidesTruths(const OpSignature& signature) {
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    if (signature.output_spec(o).dtype == DType::kBool) return true;
  }
  return std::any_of(signature.nodes.begin(), signature.nodes.end(),
                     [](const Node& node) { return FactsOf(node.op).is_truth; });
}

int DecidesExtremes(const OpSignature& signature) {
  bool maxima = false, minima = false;
  for (const Node& node : signature.nodes) {
    const OpFacts& facts = FactsOf(node.op);
    if (facts.extreme == 0 && !facts.tame) return 0;
    maxima = maxima || facts.extreme > 0;
    minima = minima || facts.extreme < 0;
  }
  if (signature.inputs.empty() || !IsFloating(signature.inputs[LargestInput(signature)].dtype)) {
    return 0;
  }
  return maxima == minima ? 0 : maxima ? 1 : -1;
}

size_t LargestInput(const OpSignature& signature) {
  CF_CHECK(!signature.inputs.empty()) << "a region with inputs";
  const auto size = [](const TensorSpec& spec) {
    return std::pair(IsFloating(spec.dtype), spec.numel());
  };
  const auto largest =
      std::max_element(signature.inputs.begin(), signature.inputs.end(),
                       [&](const TensorSpec& a, const TensorSpec& b) { return size(a) < size(b); });
  return static_cast<size_t>(largest - signature.inputs.begin());
}

std::vector<int64_t> TakenTogether(const OpSignature& signature, size_t i, GroupPurpose groups) {
  const std::vector<int64_t>& sizes = signature.inputs[i].sizes;
  if (groups == GroupPurpose::kAll && GivesSingleNumbers(signature)) return sizes;
  for (const Node& node : signature.nodes) {
    if (!IsFor(FactsOf(node.op), groups) || node.args.empty()) continue;
    const TensorSpec* operand = signature.SpecOf(node.args[0]);
    if (operand != nullptr && operand->sizes == sizes) return ByOperation(node, sizes);
  }
  std::vector<int64_t> together(sizes.size(), 1);
  if (IsSummedAlongColumns(signature, i)) {
    together[sizes.size() - 2] = sizes[sizes.size() - 2];
  } else if (!sizes.empty()) {
    together.back() = sizes.back();
  }
  return together;
}

device::DrawnTensor LayOut(const TensorSpec& spec, const std::vector<int64_t>& together) {
  DrawnTensor tensor = {};
  tensor.type = static_cast<DrawType>(spec.dtype);
  tensor.elements = spec.StorageBytes() / DTypeSize(spec.dtype);
  tensor.every = DivisorOf(1);
  std::vector<LayoutPart> parts = LayoutPartsOf(spec, together);
  std::stable_sort(parts.begin(), parts.end(),
                   [](const LayoutPart& a, const LayoutPart& b) { return a.stride > b.stride; });
  if (!IsOneToOne(parts)) parts = {{tensor.elements, 1, true, 1}};
  if (tensor.elements == 0) parts.clear();
  tensor.groups = tensor.length = 1;
  for (const LayoutPart& part : parts) {
    (part.is_place ? tensor.length : tensor.groups) *= part.size;
    DrawDim* const outer = tensor.rank > 0 ? &tensor.dims[tensor.rank - 1] : nullptr;
    const int64_t step = part.step * part.size;
    if (outer != nullptr && static_cast<int64_t>(outer->stride.value) == part.size * part.stride &&
        (part.is_place ? outer->place_step : outer->group_step) == step) {
      outer->size *= part.size;
      outer->stride = DivisorOf(part.stride);
      (part.is_place ? outer->place_step : outer->group_step) = part.step;
      continue;
    }
    CF_CHECK(tensor.rank < device::kDrawDims) << "eight dimensions, one of them cut";
    tensor.dims[tensor.rank++] = {part.size, DivisorOf(part.stride), part.is_place ? 0 : part.step,
                                  part.is_place ? part.step : 0};
  }
  SetRows(&tensor);
  return tensor;
}

}  // namespace cudaforge
