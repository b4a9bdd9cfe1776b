// Regions around products, for the tests of products by mma.sync.
#pragma once

#include <utility>
#include <vector>

#include "tests/cpp/generators/region.h"

namespace cudaforge::tiles {

inline constexpr DType kF32 = DType::kFloat32, kF16 = DType::kFloat16;

// mm, or bmm of tensors with three dimensions.
inline OpSignature ProductOf(TensorSpec a, TensorSpec b) {
  std::vector<int64_t> sizes = a.sizes;
  sizes.back() = b.sizes.back();
  const TensorSpec out = rows::Spec(sizes, a.dtype);
  rows::Region region;
  const Json left = region.Input(std::move(a)), right = region.Input(std::move(b));
  region.Call(sizes.size() == 3 ? "bmm" : "mm", {left, right}, {out});
  OpSignature signature = region.Signature();
  signature.device = DeviceType::kCuda;
  return signature;
}

// gelu(in0 in1 + in2) + in3; `two_outputs`: and the sum before gelu.
inline OpSignature LayerOf(int64_t m, int64_t n, int64_t k, DType dtype, bool two_outputs = false) {
  rows::Region region;
  const Json a = region.Input(rows::Spec({m, k}, dtype));
  const Json b = region.Input(rows::Spec({k, n}, dtype, {1, k}));
  const Json bias = region.Input(rows::Spec({n}, dtype));
  const Json residual = region.Input(rows::Spec({m, n}, dtype));
  const TensorSpec out = rows::Spec({m, n}, dtype);
  const int sum = region.Call("addmm", {bias, a, b}, {out});
  const int active = region.Call("gelu", {rows::Out(sum)}, {out});
  region.Output(region.Call("add.Tensor", {rows::Out(active), residual}, {out}));
  if (two_outputs) region.Output(sum);
  OpSignature signature = region.Signature();
  signature.device = DeviceType::kCuda;
  return signature;
}

// in0 in1 + in2, in0 in3 + in4 and so on.
inline OpSignature ProductsApart(int64_t m, int64_t n, int64_t k, int products) {
  rows::Region region;
  const Json a = region.Input(rows::Spec({m, k}, kF32));
  for (int p = 0; p < products; ++p) {
    const Json b = region.Input(rows::Spec({k, n}, kF32, {1, k}));
    const Json bias = region.Input(rows::Spec({n}, kF32));
    region.Output(region.Call("addmm", {bias, a, b}, {rows::Spec({m, n}, kF32)}));
  }
  OpSignature signature = region.Signature();
  signature.device = DeviceType::kCuda;
  return signature;
}

}  // namespace cudaforge::tiles
