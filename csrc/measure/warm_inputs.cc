#include "measure/warm_inputs.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "signature/op_facts.h"

namespace cudaforge {
namespace {

// Inputs used as weights, also through views and copies.
class Weights {
 public:
  explicit Weights(const OpSignature& region) : region_(region) {
    for (size_t n = 0; n < region.nodes.size(); ++n) Visit(n, region.nodes[n]);
  }

  bool Has(size_t input) const { return weights_.contains(input); }

 private:
  void Visit(size_t n, const Node& node) {
    const OpFacts& facts = FactsOf(node.op);
    if (facts.kind == OpKind::kMoves && !node.args.empty()) {
      if (const auto input = InputOf(node.args[0])) moved_[n] = *input;
    }
    if (facts.dims == OpDims::kLookedUp) Keep(node, 0);
    if (facts.work == OpWork::kConvolution) Keep(node, 1);
    if (facts.work == OpWork::kProduct) {
      const auto right = static_cast<size_t>(facts.left) + 1;
      const TensorSpec* spec =
          right < node.args.size() ? region_.SpecOf(node.args[right]) : nullptr;
      if (spec != nullptr && spec->sizes.size() == 2) Keep(node, right);
    }
  }

  std::optional<size_t> InputOf(const Json& argument) const {
    if (!IsTensorReference(argument)) return std::nullopt;
    if (argument.contains("in")) return argument["in"].get<size_t>();
    const auto moved = moved_.find(argument.value("node", size_t{0}));
    return moved == moved_.end() ? std::nullopt : std::optional(moved->second);
  }

  void Keep(const Node& node, size_t argument) {
    if (argument >= node.args.size()) return;
    if (const auto input = InputOf(node.args[argument])) weights_.insert(*input);
  }

  const OpSignature& region_;
  std::map<size_t, size_t> moved_;  // node: the input that it copies
  std::set<size_t> weights_;
};

}  // namespace

std::vector<int> WarmInputs(const OpSignature& region, const DeviceArch& arch) {
  int64_t bytes = 0;
  size_t dimensions = 0;
  for (const TensorSpec& spec : region.inputs) {
    bytes += spec.StorageBytes();
    dimensions = std::max(dimensions, spec.sizes.size());
  }
  for (size_t o = 0; o < region.outputs.size(); ++o) bytes += region.output_spec(o).StorageBytes();
  std::vector<int> warm;
  if (bytes > std::max(arch.l2_bytes.value_or(0), arch.l3_bytes.value_or(0)) / 2) return warm;
  const Weights weights(region);
  for (size_t i = 0; i < region.inputs.size(); ++i) {
    if (region.inputs[i].sizes.size() == dimensions && !weights.Has(i)) {
      warm.push_back(static_cast<int>(i));
    }
  }
  return warm;
}

}  // namespace cudaforge
