#include "signature/aten_numerics.h"

#include <ATen/Context.h>

#include <algorithm>

#include "signature/op_facts.h"

namespace cudaforge {
namespace {

constexpr const char* kPrecision = "float32_matmul_precision";
constexpr const char* kCublasIeee = "cublas_ieee";  // else "medium", without TF32

bool AllowsReduced(at::CuBLASReductionOption option) {
  return option == at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK;
}

// Flags by name, in the order of the word's bits. "deterministic" applies to every operator, the
// others to matrix products and convolutions.
struct Numerics {
  bool deterministic = false;
  bool bf16_reduced = false, fp16_reduced = false, cudnn_tf32 = false;
  // For float32 products: TF32 in cuBLAS, bfloat16 in oneDNN. They make up PyTorch's float32 matmul
  // precision: "highest" is neither, "high" the first, "medium" both.
  bool tf32 = false, bf16 = false;
  bool fp16_accumulation = false, conv_bf16 = false;

  // `matrix`: includes those of matrix products and convolutions.
  static Numerics InForce(bool matrix) {
    Numerics now;
    const at::Context& context = at::globalContext();
    now.deterministic = context.deterministicAlgorithms();
    if (!matrix) return now;
    using Backend = at::Float32Backend;
    using Op = at::Float32Op;
    using Precision = at::Float32Precision;
    now.bf16_reduced = AllowsReduced(context.allowBF16ReductionCuBLAS());
    now.fp16_reduced = AllowsReduced(context.allowFP16ReductionCuBLAS());
    now.cudnn_tf32 = context.float32Precision(Backend::CUDA, Op::CONV) == Precision::TF32;
    now.tf32 = context.float32Precision(Backend::CUDA, Op::MATMUL) == Precision::TF32;
    now.bf16 = context.float32Precision(Backend::MKLDNN, Op::MATMUL) == Precision::BF16;
    now.fp16_accumulation = context.allowFP16AccumulationCuBLAS();
    now.conv_bf16 = context.float32Precision(Backend::MKLDNN, Op::CONV) == Precision::BF16;
    return now;
  }

  // Parses a result of NumericsInForce.
  static Numerics Of(const Json& numerics) {
    const auto flag = [&](const char* name) { return MemberOrNull(numerics, name) == true; };
    const Json& precision = MemberOrNull(numerics, kPrecision);
    Numerics then;
    then.deterministic = flag("deterministic");
    then.bf16_reduced = flag("bf16_reduced_precision");
    then.fp16_reduced = flag("fp16_reduced_precision");
    then.cudnn_tf32 = flag("cudnn_tf32");
    then.bf16 = precision == "medium";
    then.tf32 = precision == "high" || (then.bf16 && !flag(kCublasIeee));
    then.fp16_accumulation = flag("fp16_accumulation");
    then.conv_bf16 = flag("mkldnn_conv_bf16");
    return then;
  }

  uint64_t Word() const {
    return (deterministic ? kDeterministicBit : 0) | uint64_t{bf16_reduced} << 1 |
           uint64_t{fp16_reduced} << 2 | uint64_t{cudnn_tf32} << 3 | uint64_t{tf32} << 4 |
           uint64_t{bf16} << 5 | uint64_t{fp16_accumulation} << 6 | uint64_t{conv_bf16} << 7;
  }
};

}  // namespace

bool IsMatrixOp(std::string_view op) {
  const OpKind kind = FactsOf(op).kind;
  return kind == OpKind::kContracts || kind == OpKind::kUnknown;
}

Json NumericsInForce(const std::vector<std::string>& ops) {
  const bool matrix = std::any_of(ops.begin(), ops.end(), IsMatrixOp);
  const Numerics in_force = Numerics::InForce(matrix);
  Json json = {{"deterministic", in_force.deterministic}};
  if (!matrix) return json;
  json["bf16_reduced_precision"] = in_force.bf16_reduced;
  json["cudnn_tf32"] = in_force.cudnn_tf32;
  json[kPrecision] = in_force.bf16 ? "medium" : in_force.tf32 ? "high" : "highest";
  json["fp16_reduced_precision"] = in_force.fp16_reduced;
  if (in_force.bf16 && !in_force.tf32) json[kCublasIeee] = true;
  if (in_force.fp16_accumulation) json["fp16_accumulation"] = true;
  if (in_force.conv_bf16) json["mkldnn_conv_bf16"] = true;
  return json;
}

uint64_t NumericsWord(bool matrix) { return Numerics::InForce(matrix).Word(); }

std::optional<uint64_t> MatrixNumericsWord(const Json& numerics) {
  if (!numerics.contains(kPrecision)) return std::nullopt;
  return Numerics::Of(numerics).Word();
}

void SetNumerics(const Json& numerics) {
  using Backend = at::Float32Backend;
  using Op = at::Float32Op;
  using Precision = at::Float32Precision;
  const Numerics requested = Numerics::Of(numerics);
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(requested.deterministic, /*warn_only=*/false);
  if (!numerics.contains(kPrecision)) return;
  context.setAllowBF16ReductionCuBLAS(requested.bf16_reduced);
  context.setAllowFP16ReductionCuBLAS(requested.fp16_reduced);
  context.setAllowFP16AccumulationCuBLAS(requested.fp16_accumulation);
  const auto choose = [&context](Backend backend, Op op, bool lower, Precision precision) {
    context.setFloat32Precision(backend, op, lower ? precision : Precision::IEEE);
  };
  choose(Backend::CUDA, Op::CONV, requested.cudnn_tf32, Precision::TF32);
  choose(Backend::CUDA, Op::MATMUL, requested.tf32, Precision::TF32);
  choose(Backend::MKLDNN, Op::CONV, requested.conv_bf16, Precision::BF16);
  choose(Backend::MKLDNN, Op::MATMUL, requested.bf16, Precision::BF16);
}

}  // namespace cudaforge
