#include "forge/region_text.h"

#include <algorithm>
#include <string_view>

namespace cudaforge {
namespace {

std::string ListText(const std::vector<int64_t>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(values[i]);
  }
  return text + "]";
}

// Whether the elements lie in row-major order without gaps.
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

// t3, or t3.1 where the call gives several tensors.
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

struct Kind {
  std::string_view name;
  // Beginnings of an op's name after "aten::"; a "$" at the end: the whole name.
  std::vector<std::string_view> ops;
};

const std::vector<Kind>& Kinds() {
  static const auto* const kinds = new std::vector<Kind>{
      {"attention",
       {"scaled_dot_product", "_scaled_dot_product", "_flash_attention", "_efficient_attention"}},
      {"convolution",
       {"convolution", "_convolution", "conv1d", "conv2d", "conv3d", "conv_transpose",
        "cudnn_convolution", "mkldnn_convolution"}},
      {"matmul",
       {"mm$", "addmm", "bmm$", "baddbmm", "addbmm", "matmul$", "linear$", "mv$", "addmv", "dot$",
        "vdot$", "_scaled_mm", "_int_mm", "einsum"}},
      {"pooling",
       {"avg_pool", "max_pool", "adaptive_avg_pool", "_adaptive_avg_pool", "adaptive_max_pool",
        "fractional_max_pool"}},
      {"loss",
       {"nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
        "kl_div", "cross_entropy_loss", "soft_margin_loss"}},
      {"scan", {"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "_logcumsumexp"}},
      {"softmax",
       {"_softmax", "softmax", "_log_softmax", "log_softmax", "logsumexp", "_safe_softmax"}},
      {"norm",
       {"native_layer_norm", "layer_norm", "native_group_norm", "group_norm", "rms_norm",
        "_fused_rms_norm", "native_batch_norm", "_native_batch_norm", "batch_norm",
        "cudnn_batch_norm", "instance_norm", "_batch_norm"}},
      {"reduction",
       {"sum", "mean", "prod", "amax", "amin", "aminmax", "max$", "min$", "argmax", "argmin", "any",
        "all$", "count_nonzero", "nansum", "median", "std", "var", "linalg_vector_norm", "norm$"}}};
  return *kinds;
}

bool IsOneOf(std::string_view op, const std::vector<std::string_view>& ops) {
  return std::any_of(ops.begin(), ops.end(), [op](std::string_view wanted) {
    if (!wanted.ends_with('$')) return op.starts_with(wanted);
    wanted.remove_suffix(1);
    return op == wanted;
  });
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
  for (const Kind& kind : Kinds()) {
    for (const Node& node : signature.nodes) {
      if (!node.op.starts_with("aten::")) continue;
      if (IsOneOf(OpShortName(node.op), kind.ops)) return std::string(kind.name);
    }
  }
  return "other";
}

}  // namespace cudaforge
