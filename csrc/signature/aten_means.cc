#include "signature/aten_means.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

#include "signature/op_signature.h"

namespace cudaforge {
namespace {

using Args = c10::ArrayRef<c10::IValue>;

at::Tensor OverDims(const at::Tensor& input, Args args) {
  const bool some = args.size() > 1 && args[1].isIntList();  // the others are of all elements
  return some ? input.mean(args[1].toIntVector()) : input.mean();
}

at::Tensor OverNormalizedShape(const at::Tensor& input, Args args) {
  const auto inside = static_cast<int64_t>(args[1].toIntVector().size());
  return input.flatten(input.dim() - inside).mean(-1);
}

at::Tensor OverGroups(const at::Tensor& input, Args args) {
  return input.reshape({args[3].toInt(), args[6].toInt(), -1}).mean(-1);
}

at::Tensor OverChannels(const at::Tensor& input, Args) {
  return input.transpose(0, 1).flatten(1).mean(-1);
}

struct MeanOp {
  std::string_view name;
  at::Tensor (*mean)(const at::Tensor& input, Args args);
};

constexpr MeanOp kOps[] = {
    {"aten::var_mean", OverDims},
    {"aten::std_mean", OverDims},
    {"aten::native_layer_norm", OverNormalizedShape},
    {"aten::native_group_norm", OverGroups},
    {"aten::native_batch_norm", OverChannels},
    {"aten::_native_batch_norm_legit", OverChannels},
};

const MeanOp* Find(std::string_view op) {
  const auto* found = std::find_if(std::begin(kOps), std::end(kOps),
                                   [&](const MeanOp& one) { return one.name == OpBaseName(op); });
  return found == std::end(kOps) ? nullptr : found;
}

}  // namespace

bool HasMean(std::string_view op) { return Find(op) != nullptr; }

at::Tensor DefinedMean(std::string_view op, Args args, const at::Tensor& mean) {
  // Of a norm that was given its statistics there is no mean.
  if (mean.numel() == 0 || !mean.isnan().any().item<bool>()) return mean;
  const at::Tensor defined = Find(op)->mean(args[0].toTensor(), args).reshape(mean.sizes());
  return at::where(mean.isnan(), defined.to(mean.scalar_type()), mean);
}

}  // namespace cudaforge
