#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "signature/aten_oracle.h"

namespace cudaforge {
namespace {

at::Tensor Bytes(int64_t rows, int64_t columns) {
  return at::randint(-128, 128, {rows, columns}, at::kChar);
}

Float64 Of(const char* op) { return FactsOf(op).float64; }

TEST(RunInFloat64, AProductOfIntegersIsExact) {
  const at::Tensor a = Bytes(32, 64), b = Bytes(64, 16);
  const at::Tensor got = RunInFloat64(Of("aten::_int_mm"), {a, b});
  EXPECT_TRUE(at::equal(got, at::_int_mm(a, b).to(at::kDouble)));
}

TEST(RunInFloat64, WeightsOfIntegersAreScaledByTheRow) {
  const at::Tensor x = at::randn({4, 64}), weight = Bytes(32, 64), scales = at::rand({32}) + 0.5;
  const at::Tensor got = RunInFloat64(Of("aten::_weight_int8pack_mm"), {x, weight, scales});
  const at::Tensor wide = at::_weight_int8pack_mm(x, weight, scales).to(at::kDouble);
  EXPECT_TRUE(at::allclose(got, wide, 1e-5, 1e-3));
}

TEST(RunInFloat64, AScaledProductHasTwoScalesAndABias) {
  const auto small = [](at::Tensor x) { return x.to(at::kFloat8_e4m3fn); };
  const at::Tensor a = small(at::randn({16, 32})), b = small(at::randn({16, 32})).t();
  const at::Tensor half = at::full({}, 0.5f), two = at::full({}, 2.0f);
  const at::Tensor bias = at::ones({16}, at::kDouble);
  const at::Tensor product = a.to(at::kDouble).mm(b.to(at::kDouble));
  const Float64 how = Of("aten::_scaled_mm");
  const c10::IValue none, fast(false);
  EXPECT_TRUE(
      at::allclose(RunInFloat64(how, {a, b, half, two, bias, none, none, fast}), product + 1));
  EXPECT_TRUE(
      at::allclose(RunInFloat64(how, {a, b, half, half, none, two, none, fast}), product * 0.5));
}

TEST(RunInFloat64, MostOpsHaveAFloat64Kernel) {
  for (const char* op : {"aten::mm", "aten::_softmax", "aten::no_such_op"}) {
    EXPECT_EQ(Of(op), Float64::kItself) << op;
  }
}

}  // namespace
}  // namespace cudaforge
