#include "target/launch_args.h"

namespace cudaforge {

BufferRef BufferOf(const LaunchArg& arg, const LaunchPlan& plan) {
  const auto index = static_cast<size_t>(arg.index);
  if (arg.kind != LaunchArg::Kind::kPrepared) return {arg.kind, index};
  return {LaunchArg::Kind::kScratch, plan.scratch_bytes.size() + index};
}

Result<EvaluatedArgs> EvaluateArgs(const Launch& launch, const LaunchPlan& plan,
                                   const OpSignature& signature) {
  if (launch.args.size() > kMaxLaunchArgs) {
    return Status::InvalidArgument("launch of '" + launch.kernel + "' has more than 256 arguments");
  }
  EvaluatedArgs args;
  args.reserve(launch.args.size());
  for (const LaunchArg& arg : launch.args) {
    EvaluatedArg ready;
    switch (arg.kind) {
      case LaunchArg::Kind::kInput:
      case LaunchArg::Kind::kOutput:
      case LaunchArg::Kind::kScratch:
      case LaunchArg::Kind::kPrepared:
        if (arg.index < 0)
          return Status::InvalidArgument("launch of '" + launch.kernel +
                                         "': negative buffer index");
        ready.is_buffer = true;
        ready.buffer = BufferOf(arg, plan);
        break;
      case LaunchArg::Kind::kInt: {
        CF_ASSIGN_OR_RETURN(ready.integer, arg.expr.Evaluate(signature));
        break;
      }
      case LaunchArg::Kind::kFloat:
        ready.is_float = true;
        ready.number = arg.number;
        break;
      case LaunchArg::Kind::kTensorMap:
        ready.is_tensor_map = true;
        ready.tensor_map = static_cast<size_t>(arg.index);
        if (arg.index < 0 || ready.tensor_map >= plan.tensor_maps.size())
          return Status::InvalidArgument("launch of '" + launch.kernel + "': no tensor map " +
                                         std::to_string(arg.index));
        break;
      case LaunchArg::Kind::kInOut:
      case LaunchArg::Kind::kSymbol:
        return Status::InvalidArgument("launch of '" + launch.kernel +
                                       "': an argument of a kind "
                                       "that no target passes");
    }
    args.push_back(ready);
  }
  return args;
}

std::vector<size_t> ZeroedScratch(const LaunchPlan& plan) {
  std::vector<size_t> zeroed;
  for (size_t i = 0; i < plan.scratch_bytes.size(); ++i) {
    if (plan.scratch_bytes[i].zeroed) zeroed.push_back(i);
  }
  return zeroed;
}

Result<std::vector<int64_t>> EvaluateScratch(const LaunchPlan& plan, const OpSignature& signature) {
  std::vector<int64_t> bytes;
  const auto add = [&](const IntExpr& expr) -> Status {
    CF_ASSIGN_OR_RETURN(const int64_t value, expr.Evaluate(signature));
    if (value < 0) return Status::InvalidArgument("a scratch buffer of negative size");
    bytes.push_back(value);
    return Status::Ok();
  };
  for (const ScratchBuffer& buffer : plan.scratch_bytes) CF_RETURN_IF_ERROR(add(buffer.bytes));
  for (const IntExpr& prepared : plan.prepared_bytes) CF_RETURN_IF_ERROR(add(prepared));
  return bytes;
}

}  // namespace cudaforge
