#include "signature/aten_numerics.h"

#include <ATen/Context.h>

#include <algorithm>
#include <array>

namespace cudaforge {
namespace {

constexpr std::array<std::string_view, 7> kMatrixOps = {
    "mm", "bmm", "addmm", "baddbmm", "convolution", "scaled_dot_product", "linear"};

constexpr std::array<const char*, 3> kPrecisions = {"highest", "high", "medium"};

bool AllowsReduced(at::CuBLASReductionOption option) {
  return option == at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK;
}

struct Numerics {
  bool deterministic = at::globalContext().deterministicAlgorithms();
  bool bf16_reduced = false, fp16_reduced = false, cudnn_tf32 = false;
  size_t precision = 0;

  explicit Numerics(bool matrix) {
    if (!matrix) return;
    const at::Context& context = at::globalContext();
    bf16_reduced = AllowsReduced(context.allowBF16ReductionCuBLAS());
    fp16_reduced = AllowsReduced(context.allowFP16ReductionCuBLAS());
    cudnn_tf32 = context.allowTF32CuDNN();
    precision = static_cast<size_t>(context.float32MatmulPrecision());
  }
};

}  // namespace

bool IsMatrixOp(std::string_view op) {
  return std::any_of(kMatrixOps.begin(), kMatrixOps.end(), [op](std::string_view word) {
    return op.find(word) != std::string_view::npos;
  });
}

Json NumericsInForce(const std::vector<std::string>& ops) {
  const bool matrix = std::any_of(ops.begin(), ops.end(), IsMatrixOp);
  const Numerics in_force(matrix);
  Json json = {{"deterministic", in_force.deterministic}};
  if (matrix) {
    json["bf16_reduced_precision"] = in_force.bf16_reduced;
    json["cudnn_tf32"] = in_force.cudnn_tf32;
    json["float32_matmul_precision"] = kPrecisions.at(in_force.precision);
    json["fp16_reduced_precision"] = in_force.fp16_reduced;
  }
  return json;
}

uint64_t NumericsWord(bool matrix) {
  const Numerics in_force(matrix);
  return uint64_t{in_force.deterministic} | uint64_t{in_force.bf16_reduced} << 1 |
         uint64_t{in_force.fp16_reduced} << 2 | uint64_t{in_force.cudnn_tf32} << 3 |
         uint64_t{in_force.precision} << 4;
}

}  // namespace cudaforge
