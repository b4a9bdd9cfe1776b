#include "verify/roles.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "signature/attention_op.h"

namespace cudaforge {
namespace {

using Kind = InputRole::Kind;

// Where the bound of an index comes from: another argument's size, or an integer argument.
enum class Bound { kNone, kSizeAt, kLastSizes2d, kLastSizes3d, kDimArgument, kIntArgument };

struct ArgumentRole {
  int argument;  // position in the schema
  Kind kind;
  Bound bound = Bound::kNone;
  int source = 0;   // the argument the bound is read from
  int detail = 0;   // kSizeAt: the dimension; kDimArgument: the argument that names it
  int ignore = -1;  // kTarget: the argument that holds ignore_index
};

// Keyed by the op's name without its overload.
const std::map<std::string, std::vector<ArgumentRole>, std::less<>>& Table() {
  static const auto* table = new std::map<std::string, std::vector<ArgumentRole>, std::less<>>{
      {"aten::nll_loss_forward", {{1, Kind::kTarget, Bound::kSizeAt, 0, -1, 4}}},
      {"aten::nll_loss_backward",
       {{2, Kind::kTarget, Bound::kSizeAt, 1, -1, 5}, {6, Kind::kPositive}}},
      {"aten::nll_loss2d_forward", {{1, Kind::kTarget, Bound::kSizeAt, 0, 1, 4}}},
      {"aten::nll_loss2d_backward",
       {{2, Kind::kTarget, Bound::kSizeAt, 1, 1, 5}, {6, Kind::kPositive}}},
      {"aten::embedding", {{1, Kind::kIndex, Bound::kSizeAt, 0, 0}}},
      {"aten::embedding_dense_backward", {{1, Kind::kIndex, Bound::kIntArgument, 2}}},
      {"aten::index_select", {{2, Kind::kIndex, Bound::kDimArgument, 0, 1}}},
      {"aten::gather", {{2, Kind::kIndex, Bound::kDimArgument, 0, 1}}},
      {"aten::max_pool2d_with_indices_backward", {{7, Kind::kIndex, Bound::kLastSizes2d, 1}}},
      {"aten::max_pool3d_with_indices_backward", {{7, Kind::kIndex, Bound::kLastSizes3d, 1}}},
      {"aten::native_layer_norm_backward",
       {{3, Kind::kWeight}, {4, Kind::kPositive}, {5, Kind::kWeight}}},
      {"aten::native_group_norm", {{1, Kind::kWeight}}},
      {"aten::native_group_norm_backward",
       {{2, Kind::kWeight}, {3, Kind::kPositive}, {4, Kind::kWeight}}},
      {"aten::_fused_rms_norm_backward", {{3, Kind::kPositive}}},
      {"aten::native_batch_norm", {{4, Kind::kPositive}}},
      {"aten::_native_batch_norm_legit", {{4, Kind::kPositive}}},
      {"aten::_native_batch_norm_legit_no_training", {{4, Kind::kPositive}}},
      {"aten::_batch_norm_no_update", {{4, Kind::kPositive}}},
      {"aten::cudnn_batch_norm", {{4, Kind::kPositive}}},
      {"aten::batch_norm", {{4, Kind::kPositive}}},
      {"aten::native_batch_norm_backward", {{4, Kind::kPositive}, {6, Kind::kPositive}}},
      {"aten::batch_norm_backward", {{4, Kind::kPositive}, {6, Kind::kPositive}}},
      {"aten::cudnn_batch_norm_backward", {{4, Kind::kPositive}, {6, Kind::kPositive}}},
      {"aten::_softmax_backward_data", {{1, Kind::kProbability}}},
      {"aten::_log_softmax_backward_data", {{1, Kind::kLogProbability}}},
      {"aten::sigmoid_backward", {{1, Kind::kProbability}}},
      {"aten::tanh_backward", {{1, Kind::kTanh}}},
  };
  return *table;
}

// Ops whose first argument's elements come out unchanged (or spread, or picked): roles pass
// through.
bool PassesThrough(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "aten::view",   "aten::_unsafe_view", "aten::reshape",
      "aten::clone",  "aten::unsqueeze",    "aten::squeeze",
      "aten::expand", "aten::permute",      "aten::transpose",
      "aten::t",      "aten::contiguous",   "aten::_to_copy",
      "aten::alias",  "aten::slice",        "aten::select",
      "aten::flatten"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Ops that make a mask of numbers of one of booleans, or a mask of others.
bool MakesMask(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "aten::where",       "aten::masked_fill", "aten::logical_not", "aten::bitwise_not",
      "aten::logical_and", "aten::bitwise_and", "aten::logical_or",  "aten::bitwise_or"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Ops that take integers to address memory.
bool MayIndex(std::string_view name) {
  for (std::string_view word :
       {"index", "gather", "scatter", "embedding", "take", "unpool", "put", "nll_loss", "one_hot",
        "bincount", "segment", "lookup", "max_pool"}) {
    if (name.find(word) != std::string_view::npos) return true;
  }
  return false;
}

const Json* Argument(const Node& node, int position) {
  const auto i = static_cast<size_t>(position);
  return position >= 0 && i < node.args.size() ? &node.args[i] : nullptr;
}

int64_t IntArgument(const Node& node, int position, int64_t otherwise) {
  const Json* argument = Argument(node, position);
  return argument != nullptr && argument->is_number_integer() ? argument->get<int64_t>()
                                                              : otherwise;
}

int64_t SizeAt(const TensorSpec& spec, int64_t dim) {
  const auto dims = static_cast<int64_t>(spec.sizes.size());
  if (dim < 0) dim += dims;
  return dim >= 0 && dim < dims ? spec.sizes[static_cast<size_t>(dim)] : 1;
}

// 0 when the bound cannot be told.
int64_t BoundOf(const OpSignature& signature, const Node& node, const ArgumentRole& role) {
  if (role.bound == Bound::kIntArgument) return IntArgument(node, role.source, 0);
  const Json* source = Argument(node, role.source);
  const TensorSpec* spec = source == nullptr ? nullptr : signature.SpecOf(*source);
  if (spec == nullptr) return 0;
  switch (role.bound) {
    case Bound::kSizeAt:
      return SizeAt(*spec, role.detail);
    case Bound::kDimArgument:
      return SizeAt(*spec, IntArgument(node, role.detail, 0));
    case Bound::kLastSizes2d:
      return SizeAt(*spec, -1) * SizeAt(*spec, -2);
    case Bound::kLastSizes3d:
      return SizeAt(*spec, -1) * SizeAt(*spec, -2) * SizeAt(*spec, -3);
    default:
      return 0;
  }
}

void GiveAttentionRoles(const OpSignature& signature, const Node& node, const AttentionOp& op,
                        const auto& give) {
  const auto keyword = node.kwargs.find("attn_mask");
  const Json* mask = keyword != node.kwargs.end() ? &*keyword : Argument(node, op.mask);
  const Json* causal = Argument(node, op.causal);
  const Json* key = Argument(node, 1);
  const TensorSpec* keys = key == nullptr ? nullptr : signature.SpecOf(*key);
  const bool hides = (mask != nullptr && signature.SpecOf(*mask) != nullptr) ||
                     (causal != nullptr && *causal == true);
  // Of fewer keys than a vector has numbers, ATen's kernel for a CPU loses a query's NaN.
  const bool loses_nan =
      signature.device == DeviceType::kCpu && keys != nullptr && SizeAt(*keys, -2) < 16;
  const bool finite = hides || loses_nan;
  give(Argument(node, 0), loses_nan ? Kind::kFinite : Kind::kQuery);
  give(key, finite ? Kind::kFinite : Kind::kKey);
  give(Argument(node, 2), finite ? Kind::kFinite : Kind::kSeen);
  give(mask, Kind::kMask);
}

// The roles of every value of the region, while the nodes are walked from last to first.
struct Values {
  std::vector<InputRole> inputs;
  std::vector<std::vector<InputRole>> nodes;

  InputRole* Of(const Json& reference) {
    if (!reference.is_object()) return nullptr;
    if (reference.contains("in")) return &inputs[reference["in"].get<size_t>()];
    if (reference.contains("node")) {
      return &nodes[reference["node"].get<size_t>()][reference["out"].get<size_t>()];
    }
    return nullptr;
  }
};

void Visit(const Json& argument, const auto& visitor) {
  if (argument.is_array()) {
    for (const Json& item : argument) Visit(item, visitor);
  } else {
    visitor(argument);
  }
}

}  // namespace

Result<std::vector<InputRole>> FindRoles(const OpSignature& signature) {
  Values values;
  values.inputs.resize(signature.inputs.size());
  for (const Node& node : signature.nodes) values.nodes.emplace_back(node.outputs.size());

  for (size_t n = signature.nodes.size(); n-- > 0;) {
    const Node& node = signature.nodes[n];
    const std::string_view name = OpBaseName(node.op);
    if (PassesThrough(name) && !node.args.empty() && !values.nodes[n].empty()) {
      InputRole* source = values.Of(node.args[0]);
      if (source != nullptr && values.nodes[n][0].kind != Kind::kValue) {
        *source = values.nodes[n][0];
      }
      continue;
    }
    if (const AttentionOp* attention = FindAttentionOp(name)) {
      GiveAttentionRoles(signature, node, *attention, [&](const Json* argument, Kind kind) {
        InputRole* role = argument == nullptr ? nullptr : values.Of(*argument);
        if (role != nullptr) *role = {kind};
      });
      continue;
    }
    if (name.find("attention") != std::string_view::npos) {
      return Status::Unsupported(node.op + ": what its mask may be is not known");
    }
    if (MakesMask(name) && !values.nodes[n].empty() && values.nodes[n][0].kind == Kind::kMask) {
      for (const Json& argument : node.args) {
        const TensorSpec* spec = signature.SpecOf(argument);
        if (spec != nullptr && spec->dtype == DType::kBool) {
          *values.Of(argument) = values.nodes[n][0];
        }
      }
      continue;
    }
    const auto entry = Table().find(name);
    std::vector<const Json*> known;
    if (entry != Table().end()) {
      for (const ArgumentRole& rule : entry->second) {
        const Json* argument = Argument(node, rule.argument);
        InputRole* role = argument == nullptr ? nullptr : values.Of(*argument);
        if (role == nullptr) continue;
        known.push_back(argument);
        InputRole found{rule.kind, 0, IntArgument(node, rule.ignore, -100)};
        if (rule.bound != Bound::kNone) {
          found.limit = BoundOf(signature, node, rule);
          if (found.limit <= 0) {
            return Status::Unsupported(node.op + ": the range of its indices is not known");
          }
        }
        // An input read twice must be legal for both readers.
        if (role->limit > 0 && found.limit > 0) found.limit = std::min(found.limit, role->limit);
        if (role->kind == Kind::kIndex && found.kind == Kind::kTarget) found.kind = Kind::kIndex;
        *role = found;
      }
    }
    if (!MayIndex(name)) continue;
    bool unknown = false;
    const auto check = [&](const Json& argument) {
      const TensorSpec* spec = signature.SpecOf(argument);
      if (spec == nullptr || (spec->dtype != DType::kInt64 && spec->dtype != DType::kInt32)) return;
      const bool handled =
          std::any_of(known.begin(), known.end(), [&](const Json* k) { return *k == argument; });
      unknown = unknown || !handled;
    };
    Visit(node.args, check);
    for (const Json& argument : node.kwargs) Visit(argument, check);
    if (unknown) {
      return Status::Unsupported(node.op + ": what its integer inputs may be is not known");
    }
  }
  return values.inputs;
}

}  // namespace cudaforge
