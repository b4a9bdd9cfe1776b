#include "verify/match.h"

#include <algorithm>

namespace cudaforge {
namespace {

// The number of elements along the dimension in this argument; without one, of the whole tensor.
int64_t ElementsAlong(const TensorSpec& spec, const Node& node, size_t argument) {
  if (node.args.size() <= argument || !node.args[argument].is_number_integer()) return spec.numel();
  const auto rank = static_cast<int64_t>(spec.sizes.size());
  int64_t dim = node.args[argument].get<int64_t>();
  if (dim < 0) dim += rank;
  return dim >= 0 && dim < rank ? spec.sizes[static_cast<size_t>(dim)] : spec.numel();
}

}  // namespace

Match MatchForOps(const OpSignature& signature) {
  Match match = Match::kBitwise;
  for (const Node& node : signature.nodes) match = std::min(match, FactsOf(node.op).match);
  return match;
}

bool IsConstant(const OpSignature& signature, size_t o) {
  if (signature.output_spec(o).numel() == 0) return true;
  const auto [at, out] = signature.outputs[o];
  const Node& node = signature.nodes[static_cast<size_t>(at)];
  const OpFacts& facts = FactsOf(node.op);
  const TensorSpec* self = node.args.empty() ? nullptr : signature.SpecOf(node.args[0]);
  if (self == nullptr) return false;
  // A sum of weights is zero without averaging. For images, a GPU leaves it uninitialised.
  if (out == facts.weights && facts.family == OpFamily::kLoss) {
    const bool zeroed = self->sizes.size() == 2 ||
                        (self->sizes.size() == 4 && signature.device == DeviceType::kCpu);
    return zeroed && node.args.size() > 3 && node.args[3] == 0;
  }
  return out == facts.place && ElementsAlong(*self, node, static_cast<size_t>(facts.axes)) == 1;
}

}  // namespace cudaforge
