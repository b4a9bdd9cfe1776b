#include "verify/large_sums.h"

#include <algorithm>
#include <utility>

#include "signature/op_facts.h"
#include "verify/slice_plan.h"

namespace cudaforge {
namespace {

// The most elements of a sum's value. Above that, slices are small enough.
constexpr int64_t kMostValues = 4096;
constexpr int64_t kFewestTerms = 64;  // for each

// For a loss, the number of terms depends on its labels, the second operand.
int64_t TermsOf(const OpSignature& signature, const Node& node, const TensorSpec& value) {
  const bool loss = FactsOf(node.op).weights >= 0;
  const TensorSpec* operand = signature.SpecOf(node.args[loss ? 1 : 0]);
  return operand == nullptr ? 1 : operand->numel() / std::max<int64_t>(value.numel(), 1);
}

int64_t LargestOperand(const OpSignature& signature, const Node& node) {
  int64_t most = 0;
  for (const Json& argument : node.args) {
    if (!IsTensorReference(argument)) continue;
    const TensorSpec* spec = signature.SpecOf(argument);
    most = std::max(most, spec == nullptr ? 0 : spec->numel());
  }
  return most;
}

// The kind of sum that output `out` of a node is, if any. Makes `node` the call for a block.
std::optional<LargeSum::Kind> AsSum(int out, Node* node) {
  const OpFacts& facts = FactsOf(node->op);
  TensorSpec& spec = node->outputs[static_cast<size_t>(out)];
  if (!IsFloating(spec.dtype)) return std::nullopt;
  if (facts.sums == OpSums::kSum || facts.sums == OpSums::kMean) {
    if (DTypeSize(spec.dtype) == 2) {  // avoids rounding the sums of blocks to half types
      spec.dtype = DType::kFloat32;
      node->kwargs["dtype"] = {{"dtype", "float32"}};
    }
    return facts.sums == OpSums::kSum ? LargeSum::Kind::kAdd : LargeSum::Kind::kAverage;
  }
  if (facts.weights < 0 || node->args.size() <= kReductionOfLoss) return std::nullopt;
  Json& reduction = node->args[kReductionOfLoss];
  if (reduction != 1 && reduction != 2) return std::nullopt;
  const bool mean = reduction == 1 && out != facts.weights;
  reduction = 2;
  return mean ? LargeSum::Kind::kWeighted : LargeSum::Kind::kAdd;
}

std::vector<int64_t> SizesOf(const RegionAxes& axes) {
  std::vector<int64_t> sizes;
  for (const RegionAxes::Axis& axis : axes.axes) sizes.push_back(axis.size);
  return sizes;
}

// Cuts the free axes of a sum until a block fits. Returns false if it does not.
bool Cut(int64_t bytes, int64_t aim, LargeSum* sum) {
  const RegionAxes& axes = sum->axes;
  const AxisList kept = axes.OutputAxes();
  std::vector<int64_t> sizes = SizesOf(axes);
  sum->work = SlicePlan::BytesOf(axes, sizes);
  for (size_t a = 0; a < sizes.size(); ++a) {
    const bool free = axes.axes[a].state == AxisState::kFree && axes.axes[a].size > 1;
    if (!free || std::find(kept.begin(), kept.end(), static_cast<int>(a)) != kept.end()) continue;
    sum->cut.push_back(static_cast<int>(a));
    sizes[a] = 1;
    const int64_t one = SlicePlan::BytesOf(axes, sizes);
    sum->bytes = one;
    if (one > bytes) continue;
    sizes[a] = 2;
    const int64_t each = std::max<int64_t>(SlicePlan::BytesOf(axes, sizes) - one, 1);
    sum->length = std::min(std::max<int64_t>(aim - one, 0) / each + 1, axes.axes[a].size);
    sum->bytes = one + each * (sum->length - 1);
    return true;
  }
  return false;
}

// Calls visit(reference) for each tensor among the arguments of the region's calls.
void ForEachUse(OpSignature* signature, const auto& visit) {
  for (Node& node : signature->nodes) {
    ForEachTensor(node.args, visit);
    ForEachTensor(node.kwargs, visit);
  }
}

bool IsUsed(int n, int out, OpSignature* signature) {
  bool used = signature->outputs[0] == OutputRef{n, out};
  ForEachUse(signature, [&](Json& argument) {
    used = used || argument == Json({{"node", n}, {"out", out}});
  });
  return used;
}

// Replaces every argument that is output `out` of node `n` by input `input`.
void Replace(int n, int out, size_t input, OpSignature* signature) {
  ForEachUse(signature, [&](Json& argument) {
    if (argument == Json({{"node", n}, {"out", out}})) argument = {{"in", input}};
  });
}

}  // namespace

void LargeSum::ForEachBlock(const std::function<bool(const Selection&, int64_t)>& visit) const {
  Selection block;
  block.axes.resize(axes.axes.size());
  std::vector<int64_t> at(cut.size(), 0);
  while (true) {
    int64_t places = 1;
    for (size_t i = 0; i < cut.size(); ++i) {
      const auto axis = static_cast<size_t>(cut[i]);
      const bool last = i + 1 == cut.size();
      places = last ? std::min(length, axes.axes[axis].size - at[i]) : 1;
      block.axes[axis] = {Selection::Kind::kListed, {}};
      for (int64_t p = 0; p < places; ++p) block.axes[axis].places.push_back(at[i] + p);
    }
    if (!visit(block, places)) return;
    size_t i = cut.size();
    while (i > 0) {  // the next block, last axis first
      at[i - 1] += i == cut.size() ? length : 1;
      if (at[i - 1] < axes.axes[static_cast<size_t>(cut[i - 1])].size) break;
      at[--i] = 0;
    }
    if (i == 0) return;
  }
}

std::optional<SplitRegion> SplitAtSums(const RegionAxes& region, int64_t bytes, int64_t aim) {
  SplitRegion split;
  OpSignature rest = region.signature;
  const size_t inputs = rest.inputs.size();
  // Maps inputs of a part of `rest` to the region's inputs or sums.
  const auto name_inputs = [&](RegionAxes* axes) {
    for (int& input : axes->input_of) {
      const auto i = static_cast<size_t>(input);
      input = i < inputs ? region.input_of[i] : OfSum(i - inputs);
    }
  };
  for (size_t n = 0; n < rest.nodes.size(); ++n) {
    for (size_t k = 0; k < rest.nodes[n].outputs.size(); ++k) {
      const TensorSpec spec = rest.nodes[n].outputs[k];
      const int64_t terms = LargestOperand(rest, rest.nodes[n]);
      const auto node = static_cast<int>(n), out = static_cast<int>(k);
      if (spec.absent || spec.numel() > kMostValues || terms < kFewestTerms * spec.numel() ||
          !IsUsed(node, out, &rest)) {
        continue;
      }
      OpSignature leading = rest;
      LargeSum sum;
      const auto kind = AsSum(out, &leading.nodes[n]);
      if (!kind.has_value()) continue;
      sum.kind = *kind;
      sum.dtype = spec.dtype;
      sum.terms = TermsOf(rest, rest.nodes[n], spec);
      leading.outputs = {{node, out}};
      sum.axes = FindAxes(leading, 0, /*by_blocks=*/true);
      if (SlicePlan::BytesOf(sum.axes, SizesOf(sum.axes)) <= bytes) continue;
      if (!Cut(bytes, std::min(aim, bytes), &sum)) return std::nullopt;
      if (sum.kind == LargeSum::Kind::kWeighted) {
        const int last = sum.axes.signature.outputs[0].node;
        sum.axes.signature.outputs.push_back({last, FactsOf(rest.nodes[n].op).weights});
      }
      name_inputs(&sum.axes);
      rest.inputs.push_back(spec);
      Replace(node, out, rest.inputs.size() - 1, &rest);
      if (rest.outputs[0] == OutputRef{node, out}) {  // only the sum itself remains
        rest.nodes.push_back({std::string(CallToCopy()),
                              Json::array({{{"in", rest.inputs.size() - 1}}}),
                              {{"memory_format", nullptr}},
                              {spec}});
        rest.outputs = {{static_cast<int>(rest.nodes.size()) - 1, 0}};
      }
      split.sums.push_back(std::move(sum));
    }
  }
  if (split.sums.empty()) return std::nullopt;
  split.rest = FindAxes(rest, 0);
  name_inputs(&split.rest);
  return split;
}

}  // namespace cudaforge
