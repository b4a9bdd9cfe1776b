#include "verify/match.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

namespace cudaforge {
namespace {

constexpr std::string_view kMovesData[] = {"aten::alias",
                                           "aten::as_strided",
                                           "aten::cat",
                                           "aten::clone",
                                           "aten::constant_pad_nd",
                                           "aten::contiguous",
                                           "aten::detach",
                                           "aten::embedding",
                                           "aten::expand",
                                           "aten::flip",
                                           "aten::gather",
                                           "aten::index",
                                           "aten::index_select",
                                           "aten::masked_fill",
                                           "aten::permute",
                                           "aten::repeat",
                                           "aten::reshape",
                                           "aten::roll",
                                           "aten::select",
                                           "aten::slice",
                                           "aten::split",
                                           "aten::squeeze",
                                           "aten::stack",
                                           "aten::t",
                                           "aten::transpose",
                                           "aten::tril",
                                           "aten::triu",
                                           "aten::unsqueeze",
                                           "aten::view",
                                           "aten::_unsafe_view",
                                           "aten::where"};

// Exact in any precision: the answer is one of the operands, an operand with another sign, or 0, 1
// or -1.
constexpr std::string_view kExact[] = {"aten::abs",
                                       "aten::amax",
                                       "aten::amin",
                                       "aten::aminmax",
                                       "aten::clamp_max",
                                       "aten::clamp_min",
                                       "aten::cummax",
                                       "aten::cummin",
                                       "aten::max",
                                       "aten::maximum",
                                       "aten::max_pool2d_with_indices",
                                       "aten::max_pool3d_with_indices",
                                       "aten::min",
                                       "aten::minimum",
                                       "aten::neg",
                                       "aten::relu",
                                       "aten::sign",
                                       "aten::sort",
                                       "aten::threshold_backward",
                                       "aten::topk"};

// Name the place of one element along a dimension, in which of their outputs.
constexpr std::pair<std::string_view, int> kPlaces[] = {
    {"aten::argmax", 0}, {"aten::argmin", 0}, {"aten::cummax", 1},
    {"aten::cummin", 1}, {"aten::max", 1},    {"aten::min", 1},
};

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Elements along the dimension that is the second argument; without one, of the whole tensor.
int64_t ElementsAlong(const TensorSpec& spec, const Node& node) {
  if (node.args.size() < 2 || !node.args[1].is_number_integer()) return spec.numel();
  const auto rank = static_cast<int64_t>(spec.sizes.size());
  int64_t dim = node.args[1].get<int64_t>();
  if (dim < 0) dim += rank;
  return dim >= 0 && dim < rank ? spec.sizes[static_cast<size_t>(dim)] : spec.numel();
}

}  // namespace

Match MatchForOps(const OpSignature& signature) {
  Match match = Match::kBitwise;
  for (const Node& node : signature.nodes) {
    const std::string_view name = OpBaseName(node.op);
    if (Contains(kMovesData, name)) continue;
    if (!Contains(kExact, name)) return Match::kTolerance;
    match = Match::kEqual;
  }
  return match;
}

bool IsConstant(const OpSignature& signature, size_t o) {
  if (signature.output_spec(o).numel() == 0) return true;
  const auto [at, out] = signature.outputs[o];
  const Node& node = signature.nodes[static_cast<size_t>(at)];
  const std::string_view name = OpBaseName(node.op);
  const TensorSpec* self = node.args.empty() ? nullptr : signature.SpecOf(node.args[0]);
  if (self == nullptr) return false;
  // The total weight is zero where nothing is averaged. A GPU's nll_loss2d leaves it as it was.
  const bool loss = name == "aten::nll_loss_forward" && self->sizes.size() == 2;
  const bool loss2d = name == "aten::nll_loss2d_forward" && signature.device == DeviceType::kCpu;
  if (loss || loss2d) return out == 1 && node.args.size() > 3 && node.args[3] == 0;
  const bool place =
      std::find(std::begin(kPlaces), std::end(kPlaces), std::pair(name, out)) != std::end(kPlaces);
  return place && ElementsAlong(*self, node) == 1;
}

}  // namespace cudaforge
