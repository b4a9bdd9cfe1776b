#include "signature/roles.h"

#include <algorithm>

namespace cudaforge {
namespace {

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

// Returns 0 if the limit is unknown.
int64_t LimitOf(const OpSignature& signature, const Node& node, const OperandFacts& operand) {
  if (operand.limit == IndexLimit::kArgument) return IntArgument(node, operand.source, 0);
  const Json* source = Argument(node, operand.source);
  const TensorSpec* spec = source == nullptr ? nullptr : signature.SpecOf(*source);
  if (spec == nullptr) return 0;
  switch (operand.limit) {
    case IndexLimit::kSizeOf:
      return SizeAt(*spec, operand.detail);
    case IndexLimit::kSizeOfDim:
      return SizeAt(*spec, IntArgument(node, operand.detail, 0));
    case IndexLimit::kLastTwoSizes:
      return SizeAt(*spec, -1) * SizeAt(*spec, -2);
    case IndexLimit::kLastThreeSizes:
      return SizeAt(*spec, -1) * SizeAt(*spec, -2) * SizeAt(*spec, -3);
    default:
      return 0;
  }
}

// Returns true if an integer operand may address memory.
bool MayIndex(const OpFacts& facts) {
  return facts.picks ||
         std::any_of(facts.operands.begin(), facts.operands.end(), [](const OperandFacts& operand) {
           return operand.limit != IndexLimit::kNone;
         });
}

void GiveAttentionRoles(const OpSignature& signature, const Node& node, const OpFacts& facts,
                        const auto& give) {
  const auto keyword = node.kwargs.find("attn_mask");
  const Json* mask =
      keyword != node.kwargs.end() ? &*keyword : Argument(node, facts.operands[3].argument);
  const Json* causal = Argument(node, facts.causal);
  const Json* key = Argument(node, 1);
  const TensorSpec* keys = key == nullptr ? nullptr : signature.SpecOf(*key);
  const bool hides = (mask != nullptr && signature.SpecOf(*mask) != nullptr) ||
                     (causal != nullptr && *causal == true);
  // With fewer keys than vector elements, ATen's CPU kernel loses a query's NaN.
  const bool loses_nan =
      signature.device == DeviceType::kCpu && keys != nullptr && SizeAt(*keys, -2) < 16;
  const bool finite = hides || loses_nan;
  give(Argument(node, 0), loses_nan ? OperandRole::kFinite : OperandRole::kQuery);
  give(key, finite ? OperandRole::kFinite : OperandRole::kKey);
  give(Argument(node, 2), finite ? OperandRole::kFinite : OperandRole::kSeen);
  give(mask, OperandRole::kMask);
}

// The roles of all values, found by walking the nodes from last to first.
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
    const OpFacts& facts = FactsOf(node.op);
    if (facts.kind == OpKind::kUnknown) {
      return Status::Unsupported(node.op + ": the valid values of its operands are unknown");
    }
    if (facts.keeps_role && !node.args.empty() && !values.nodes[n].empty()) {
      InputRole* source = values.Of(node.args[0]);
      if (source != nullptr && values.nodes[n][0].kind != OperandRole::kValue) {
        *source = values.nodes[n][0];
      }
      continue;
    }
    if (facts.family == OpFamily::kAttention) {
      GiveAttentionRoles(signature, node, facts, [&](const Json* argument, OperandRole kind) {
        InputRole* role = argument == nullptr ? nullptr : values.Of(*argument);
        if (role != nullptr) *role = {kind};
      });
      continue;
    }
    if (facts.makes_mask && !values.nodes[n].empty() &&
        values.nodes[n][0].kind == OperandRole::kMask) {
      for (const Json& argument : node.args) {
        const TensorSpec* spec = signature.SpecOf(argument);
        if (spec != nullptr && spec->dtype == DType::kBool) {
          *values.Of(argument) = values.nodes[n][0];
        }
      }
      continue;
    }
    std::vector<const Json*> known;
    for (const OperandFacts& operand : facts.operands) {
      const Json* argument = Argument(node, operand.argument);
      InputRole* role = argument == nullptr ? nullptr : values.Of(*argument);
      if (role == nullptr) continue;
      known.push_back(argument);
      InputRole found{operand.role, 0, IntArgument(node, operand.ignore, -100)};
      if (operand.limit != IndexLimit::kNone) {
        found.limit = LimitOf(signature, node, operand);
        if (found.limit <= 0) {
          return Status::Unsupported(node.op + ": the valid range of its indices is unknown");
        }
      }
      // If an input is read twice, its values must be valid for both.
      if (role->limit > 0 && found.limit > 0) found.limit = std::min(found.limit, role->limit);
      if (role->kind == OperandRole::kIndex && found.kind == OperandRole::kTarget)
        found.kind = OperandRole::kIndex;
      *role = found;
    }
    if (!MayIndex(facts)) continue;
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
      return Status::Unsupported(node.op + ": the valid values of its integer inputs are unknown");
    }
  }
  return values.inputs;
}

}  // namespace cudaforge
