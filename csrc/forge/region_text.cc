#include "forge/region_text.h"

#include <algorithm>
#include <string_view>

#include "signature/op_facts.h"

namespace cudaforge {
namespace {

std::string ListText(const std::vector<int64_t>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(values[i]);
  }
  return text + "]";
}

// Returns true if the elements are in row-major order without gaps.
bool IsContiguous(const TensorSpec& spec) {
  const std::vector<int64_t> wanted = ContiguousStrides(spec.sizes);
  for (size_t d = 0; d < spec.sizes.size(); ++d) {
    if (spec.sizes[d] != 1 && spec.strides[d] != wanted[d]) return false;
  }
  return true;
}

std::string SpecText(const TensorSpec& spec) {
  if (spec.absent) return "absent";
  std::string text = std::string(DTypeName(spec.dtype)) + " " + ListText(spec.sizes) +
                     ", strides " + ListText(spec.strides);
  if (IsContiguous(spec)) text += ", contiguous";
  return text;
}

// t3, or t3.1 if the call returns several tensors.
std::string ResultName(const OpSignature& signature, int64_t node, int64_t out) {
  std::string name = "t" + std::to_string(node);
  if (signature.nodes[static_cast<size_t>(node)].outputs.size() > 1) {
    name += "." + std::to_string(out);
  }
  return name;
}

std::string ArgumentText(const OpSignature& signature, const Json& argument) {
  if (argument.is_array()) {
    std::string text;
    for (const Json& item : argument) {
      text += (text.empty() ? "" : ", ") + ArgumentText(signature, item);
    }
    return "[" + text + "]";
  }
  if (argument.is_null()) return "none";
  if (!argument.is_object()) return LenientText(argument);
  if (argument.contains("in")) return "in" + LenientText(argument["in"]);
  if (argument.contains("node")) {
    return ResultName(signature, argument["node"].get<int64_t>(), argument["out"].get<int64_t>());
  }
  const Json& value = argument.begin().value();
  const bool quoted = argument.contains("str") || !value.is_string();
  return quoted ? LenientText(value) : value.get<std::string>();
}

std::string CallText(const OpSignature& signature, size_t index) {
  const Node& node = signature.nodes[index];
  std::string arguments;
  for (const Json& argument : node.args) {
    arguments += (arguments.empty() ? "" : ", ") + ArgumentText(signature, argument);
  }
  for (const auto& [name, argument] : node.kwargs.items()) {
    arguments += (arguments.empty() ? "" : ", ") + name + "=" + ArgumentText(signature, argument);
  }
  std::string text = "  t" + std::to_string(index) + " = " + node.op + "(" + arguments + ")\n";
  for (size_t out = 0; out < node.outputs.size(); ++out) {
    text += "      " +
            ResultName(signature, static_cast<int64_t>(index), static_cast<int64_t>(out)) + ": " +
            SpecText(node.outputs[out]) + "\n";
  }
  return text;
}

}  // namespace

std::string DescribeRegion(const OpSignature& signature) {
  std::string text = "Device: " + std::string(DeviceTypeName(signature.device)) + "\nInputs:\n";
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const TensorSpec& spec = signature.inputs[i];
    text += "  in" + std::to_string(i) + ": " + SpecText(spec) + ", aligned to " +
            std::to_string(spec.alignment) + " bytes, " + std::to_string(spec.StorageBytes()) +
            " bytes\n";
  }
  if (signature.inputs.empty()) text += "  none\n";
  for (const std::vector<int>& group : signature.aliases) {
    std::string names;
    for (const int input : group) {
      names += (names.empty() ? "in" : ", in") + std::to_string(input);
    }
    text += "  These share one storage: " + names + "\n";
  }
  text += "Calls:\n";
  for (size_t n = 0; n < signature.nodes.size(); ++n) text += CallText(signature, n);
  text += "Outputs:\n";
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    const OutputRef& output = signature.outputs[o];
    const TensorSpec& spec = signature.output_spec(o);
    text += "  out" + std::to_string(o) + " = " + ResultName(signature, output.node, output.out) +
            ": " + SpecText(spec) + ", " + std::to_string(spec.StorageBytes()) + " bytes\n";
  }
  if (!signature.numerics.empty()) text += "Numerics in force:\n";
  for (const auto& [name, value] : signature.numerics.items()) {
    text +=
        "  " + name + ": " + (value.is_string() ? value.get<std::string>() : value.dump()) + "\n";
  }
  return text;
}

std::string RegionKind(const OpSignature& signature) {
  OpFamily heaviest = OpFamily::kOther;
  for (const Node& node : signature.nodes) {
    heaviest = std::min(heaviest, FactsOf(node.op).family);
  }
  return std::string(OpFamilyName(heaviest));
}

}  // namespace cudaforge
