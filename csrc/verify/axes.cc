#include "verify/axes.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "verify/axis_rules.h"

namespace cudaforge {
namespace {

using Dims = RegionAxes::Dims;

std::optional<OutputRef> NodeRef(const Json& argument) {
  if (!argument.is_object() || !argument.contains("node")) return std::nullopt;
  return OutputRef{argument["node"].get<int>(), argument["out"].get<int>()};
}

// Keeps only what `output` needs, with a separate input for each use. `needed`: by node, by its
// outputs.
void Reduce(const OpSignature& signature, size_t output, RegionAxes* axes,
            std::vector<std::vector<bool>>* needed) {
  std::vector<std::vector<bool>> used(signature.nodes.size());
  for (size_t n = 0; n < used.size(); ++n) used[n].resize(signature.nodes[n].outputs.size());
  const OutputRef wanted = signature.outputs[output];
  used[static_cast<size_t>(wanted.node)][static_cast<size_t>(wanted.out)] = true;
  OpSignature one = signature;
  auto is_used = [&](size_t n) {
    return std::find(used[n].begin(), used[n].end(), true) != used[n].end();
  };
  for (size_t n = used.size(); n-- > 0;) {
    if (!is_used(n)) continue;
    auto use = [&](const Json& reference) {
      const auto ref = NodeRef(reference);
      if (!ref.has_value()) return;
      used[static_cast<size_t>(ref->node)][static_cast<size_t>(ref->out)] = true;
    };
    ForEachTensor(one.nodes[n].args, use);
    ForEachTensor(one.nodes[n].kwargs, use);
  }
  std::vector<int> number(used.size(), -1);
  axes->signature.device = signature.device;
  axes->signature.numerics = signature.numerics;
  for (size_t n = 0; n < used.size(); ++n) {
    if (!is_used(n)) continue;
    Node node = one.nodes[n];
    auto rename = [&](Json& reference) {
      if (const auto ref = NodeRef(reference); ref.has_value()) {
        reference["node"] = number[static_cast<size_t>(ref->node)];
        return;
      }
      const int input = reference["in"].get<int>();
      reference["in"] = axes->signature.inputs.size();
      axes->signature.inputs.push_back(signature.inputs[static_cast<size_t>(input)]);
      axes->input_of.push_back(input);
    };
    ForEachTensor(node.args, rename);
    ForEachTensor(node.kwargs, rename);
    number[n] = static_cast<int>(axes->signature.nodes.size());
    axes->signature.nodes.push_back(std::move(node));
    needed->push_back(used[n]);
  }
  axes->signature.outputs = {{number[static_cast<size_t>(wanted.node)], wanted.out}};
}

class Finder {
 public:
  Finder(RegionAxes* axes, bool by_blocks) : axes_(*axes), by_blocks_(by_blocks) {}

  void Run(const std::vector<std::vector<bool>>& needed) {
    for (const TensorSpec& input : axes_.signature.inputs) axes_.inputs.push_back(Fresh(input));
    axes_.causal.resize(needed.size());
    axes_.literals.resize(needed.size());
    for (size_t n = 0; n < needed.size(); ++n) {
      axes_.nodes.emplace_back(axes_.signature.nodes[n].outputs.size());
      Visit(n, needed[n]);
    }
    RestrictTwins();
    Finish();
  }

 private:
  Dims Fresh(const TensorSpec& spec, AxisState state = AxisState::kFree) {
    Dims dims;
    for (const int64_t size : spec.sizes) dims.push_back(table_.New(size, state));
    return dims;
  }
  const Dims* Of(const Json& argument) const {
    if (!IsTensorReference(argument)) return nullptr;
    if (const auto ref = NodeRef(argument); ref.has_value()) {
      return &axes_.nodes[static_cast<size_t>(ref->node)][static_cast<size_t>(ref->out)];
    }
    return &axes_.inputs[argument["in"].get<size_t>()];
  }

  bool IsLast(size_t n) const { return static_cast<int>(n) == axes_.signature.outputs[0].node; }

  void Visit(size_t n, const std::vector<bool>& needed) {
    Node& node = axes_.signature.nodes[n];
    RuleContext context{.table = table_,
                        .signature = axes_.signature,
                        .node = node,
                        .facts = FactsOf(node.op),
                        .needed = needed,
                        .args = {},
                        .lists = {},
                        .outputs = axes_.nodes[n],
                        .literals = axes_.literals[n],
                        .by_blocks = by_blocks_ && IsLast(n)};
    for (const Json& argument : node.args) {
      context.args.push_back(Of(argument));
      context.lists.emplace_back();
      if (!argument.is_array()) continue;
      for (const Json& element : argument) context.lists.back().push_back(Of(element));
    }
    std::vector<const Dims*>
        named;  // tensors among the keyword arguments: nothing is known about them
    for (const Json& argument : node.kwargs) named.push_back(Of(argument));
    const bool known = ApplyRule(&context);
    axes_.causal[n] = known && context.causal;
    auto fix = [&](const Dims* dims) {
      if (dims == nullptr) return;
      for (const AxisList& dim : *dims) table_.Restrict(dim, AxisState::kPositional);
    };
    for (const Dims* dims : named) fix(dims);
    if (known) return;
    for (const Dims* dims : context.args) fix(dims);
    for (const auto& list : context.lists) {
      for (const Dims* dims : list) fix(dims);
    }
    axes_.literals[n].clear();
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      axes_.nodes[n][k] =
          node.outputs[k].absent ? Dims{} : Fresh(node.outputs[k], AxisState::kPositional);
    }
  }

  // An axis that occurs in two dimensions of one tensor cannot be cut at single points.
  void RestrictTwins() {
    auto restrict = [&](const Dims& dims) {
      AxisList all;
      for (const AxisList& dim : dims) {
        for (const int axis : table_.Resolve(dim)) {
          if (std::find(all.begin(), all.end(), axis) != all.end()) {
            table_.Restrict({axis}, AxisState::kPositional);
          }
          all.push_back(axis);
        }
      }
    };
    for (const Dims& dims : axes_.inputs) restrict(dims);
    for (const auto& node : axes_.nodes) {
      for (const Dims& dims : node) restrict(dims);
    }
  }

  void Finish() {
    std::vector<int> number(table_.count(), -1);
    auto finish = [&](AxisList* list) {
      *list = table_.Resolve(*list);
      for (int& axis : *list) {
        int& to = number[static_cast<size_t>(axis)];
        if (to < 0) {
          to = static_cast<int>(axes_.axes.size());
          axes_.axes.push_back({table_.size(axis), table_.state(axis)});
        }
        axis = to;
      }
    };
    for (Dims& dims : axes_.inputs) {
      for (AxisList& dim : dims) finish(&dim);
    }
    for (auto& node : axes_.nodes) {
      for (Dims& dims : node) {
        for (AxisList& dim : dims) finish(&dim);
      }
    }
    for (auto& literals : axes_.literals) {
      for (SizeLiteral& literal : literals) finish(&literal.axes);
    }
  }

  RegionAxes& axes_;
  const bool by_blocks_;
  AxisTable table_;
};

}  // namespace

RegionAxes FindAxes(const OpSignature& signature, size_t output, bool by_blocks) {
  CF_CHECK(output < signature.outputs.size()) << "no such output";
  RegionAxes axes;
  std::vector<std::vector<bool>> needed;
  Reduce(signature, output, &axes, &needed);
  Finder(&axes, by_blocks).Run(needed);
  return axes;
}

AxisList RegionAxes::OutputAxes() const {
  AxisList all;
  for (const AxisList& dim : output()) all.insert(all.end(), dim.begin(), dim.end());
  return all;
}

AxisList RegionAxes::FreeAxes() const {
  AxisList free = OutputAxes();
  std::erase_if(
      free, [&](int axis) { return axes[static_cast<size_t>(axis)].state != AxisState::kFree; });
  return free;
}

RegionAxes::Dims RegionAxes::MaskDims(size_t node) const {
  auto of = [&](const Json& argument) {
    const auto ref = NodeRef(argument);
    return ref.has_value() ? nodes[static_cast<size_t>(ref->node)][static_cast<size_t>(ref->out)]
                           : inputs[argument["in"].get<size_t>()];
  };
  Dims dims = of(signature.nodes[node].args[0]);
  const Dims keys = of(signature.nodes[node].args[1]);
  dims.back() = keys[keys.size() - 2];
  return dims;
}

OpSignature RegionAxes::Adapted(std::span<const int64_t> sizes, bool masked) const {
  CF_CHECK(sizes.size() == axes.size()) << "one size an axis";
  OpSignature adapted = signature;
  auto of = [&](const AxisList& list) {
    int64_t size = 1;
    for (const int axis : list) size *= sizes[static_cast<size_t>(axis)];
    return size;
  };
  auto resize = [&](TensorSpec* spec, const Dims& dims) {
    if (spec->absent) return;
    for (size_t d = 0; d < dims.size(); ++d) spec->sizes[d] = of(dims[d]);
    spec->strides = ContiguousStrides(spec->sizes);
    spec->alignment = DTypeSize(spec->dtype);
  };
  for (size_t i = 0; i < inputs.size(); ++i) resize(&adapted.inputs[i], inputs[i]);
  for (size_t n = 0; n < nodes.size(); ++n) {
    Node& node = adapted.nodes[n];
    for (size_t k = 0; k < node.outputs.size(); ++k) resize(&node.outputs[k], nodes[n][k]);
    for (const SizeLiteral& literal : literals[n]) {
      Json& argument = node.args[static_cast<size_t>(literal.argument)];
      (literal.element < 0 ? argument : argument[static_cast<size_t>(literal.element)]) =
          of(literal.axes);
    }
    if (!masked || !causal[n]) continue;
    TensorSpec mask;
    mask.dtype = DType::kBool;
    mask.sizes.resize(MaskDims(n).size());
    resize(&mask, MaskDims(n));
    node.args[3] = {{"in", adapted.inputs.size()}};
    node.args[5] = false;
    adapted.inputs.push_back(mask);
  }
  return adapted;
}

Json RegionAxes::ToJson() const {
  static constexpr const char* kStates[] = {"free", "permutable", "positional"};
  Json dims = Json::array();
  for (const AxisList& dim : output()) {
    Json parts = Json::array();
    for (const int axis : dim) {
      const Axis& one = axes[static_cast<size_t>(axis)];
      parts.push_back(std::to_string(one.size) + " " + kStates[static_cast<int>(one.state)]);
    }
    dims.push_back(std::move(parts));
  }
  return dims;
}

}  // namespace cudaforge
