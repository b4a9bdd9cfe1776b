#include "signature/aten_attention.h"

#include <ATen/core/Tensor.h>

#include <numeric>
#include <optional>

namespace cudaforge {
namespace {

using c10::IValue;

Result<RegionArgs> AttentionArgs(const c10::FunctionSchema& kernel, c10::ArrayRef<IValue> args) {
  const auto place = [&kernel](const char* name) { return kernel.argumentIndexWithName(name); };
  const auto given = [&](const char* name) {
    const std::optional<int> at = place(name);
    return at ? args[static_cast<size_t>(*at)] : IValue();
  };
  const auto asked = [&](const char* name) { return given(name) == IValue(true); };
  if (asked("compute_log_sumexp") || asked("return_debug_mask")) {
    return Status::Unsupported("attention for a backward");
  }
  const at::Tensor query = given("query").toTensor(), key = given("key").toTensor();
  if (query.dim() != 4 || key.dim() != 4) {
    return Status::Unsupported("attention of other than four dimensions");
  }
  if (asked("is_causal") && query.size(2) != key.size(2)) {
    return Status::Unsupported("causal attention with other numbers of keys than of queries");
  }
  RegionArgs region;
  for (const char* name :
       {"query", "key", "value", "attn_bias", "dropout_p", "is_causal", "scale"}) {
    region.values.push_back(given(name));
    region.places.push_back(place(name).value_or(-1));
  }
  region.values.emplace_back(query.size(1) != key.size(1));  // enable_gqa
  region.places.push_back(-1);
  return region;
}

bool IsAttentionKernel(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name == "aten::_scaled_dot_product_efficient_attention" ||
         name == "aten::_scaled_dot_product_cudnn_attention";
}

}  // namespace

c10::OperatorHandle RegionOpOf(const c10::OperatorHandle& op) {
  if (!IsAttentionKernel(op)) return op;
  return c10::Dispatcher::singleton().findSchemaOrThrow("aten::scaled_dot_product_attention", "");
}

Result<RegionArgs> RegionArgsOf(const c10::OperatorHandle& op, c10::ArrayRef<IValue> args) {
  if (IsAttentionKernel(op)) return AttentionArgs(op.schema(), args);
  RegionArgs same{args.vec(), std::vector<int>(args.size())};
  std::iota(same.places.begin(), same.places.end(), 0);
  return same;
}

}  // namespace cudaforge
