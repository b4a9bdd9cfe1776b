#include "verify/match.h"

#include <algorithm>
#include <string_view>

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

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
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

}  // namespace cudaforge
