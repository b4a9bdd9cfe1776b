#include "signature/aten_means.h"

#include <ATen/ATen.h>

#include "signature/op_facts.h"

namespace cudaforge {
namespace {

using Args = c10::ArrayRef<c10::IValue>;

at::Tensor OverDims(const at::Tensor& input, Args args) {
  // the other overloads reduce all elements
  const bool some = args.size() > 1 && args[1].isIntList();
  return some ? input.mean(args[1].toIntVector()) : input.mean();
}

at::Tensor OverNormalizedShape(const at::Tensor& input, Args args) {
  const auto inside = static_cast<int64_t>(args[1].toIntVector().size());
  return input.flatten(input.dim() - inside).mean(-1);
}

at::Tensor OverGroups(const at::Tensor& input, Args args) {
  return input.reshape({args[3].toInt(), args[6].toInt(), -1}).mean(-1);
}

at::Tensor OverChannels(const at::Tensor& input) {
  return input.transpose(0, 1).flatten(1).mean(-1);
}

at::Tensor MeanOf(OpNeeds needs, const at::Tensor& input, Args args) {
  switch (needs) {
    case OpNeeds::kTrailing:
      return OverNormalizedShape(input, args);
    case OpNeeds::kGroup:
      return OverGroups(input, args);
    case OpNeeds::kChannel:
      return OverChannels(input);
    default:
      return OverDims(input, args);
  }
}

}  // namespace

bool HasMean(std::string_view op) { return FactsOf(op).mean == 1; }

at::Tensor DefinedMean(std::string_view op, Args args, const at::Tensor& mean) {
  // A norm with given statistics returns no mean.
  if (mean.numel() == 0 || !mean.isnan().any().item<bool>()) return mean;
  const at::Tensor defined =
      MeanOf(FactsOf(op).needs, args[0].toTensor(), args).reshape(mean.sizes());
  return at::where(mean.isnan(), defined.to(mean.scalar_type()), mean);
}

}  // namespace cudaforge
