// Sums in other orders equal ATen's, except for rounding.
#include <gtest/gtest.h>

#include <set>

#include "tests/cpp/verify/drawn_aten.h"
#include "tests/cpp/verify/slice_regions_aten.h"
#include "verify/aten_orders.h"

namespace cudaforge {
namespace {

using B = RegionBuilder;

// Checks every order; returns the number of different answers, including ATen's.
size_t CheckOrders(const OpSignature& signature, double relative) {
  const auto program = RegionProgram::Create(signature);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  if (!program.ok()) return 0;
  const std::vector<at::Tensor> inputs = DrawnTensors(signature, "normal", 5, 5);
  const std::vector<at::Tensor> right = (*program)->RunFp64(inputs);
  std::vector<std::vector<at::Tensor>> answers = {(*program)->Run(inputs)};
  for (const SumOrder& order : SumOrders()) {
    answers.push_back((*program)->RunWith(inputs, InOrder(signature, order)));
  }
  std::set<std::string> different;
  for (const std::vector<at::Tensor>& answer : answers) {
    for (size_t o = 0; o < right.size(); ++o) {
      EXPECT_EQ(answer[o].sizes(), right[o].sizes());
      EXPECT_EQ(answer[o].scalar_type(), answers[0][o].scalar_type());
      const at::Tensor off = (answer[o].to(at::kDouble) - right[o]).abs();
      const double size = right[o].abs().max().item<double>();
      EXPECT_LE(off.max().item<double>(), relative * size);
    }
    const at::Tensor first = answer[0].contiguous();
    different.emplace(static_cast<const char*>(first.const_data_ptr()), first.nbytes());
  }
  return different.size();
}

TEST(Orders, OfScans) {
  for (const int64_t dim : {0, 1, 2}) {
    B b;
    const Json x = b.Input({40, 50, 60});
    const OpSignature signature =
        b.Done({b.Call("cumsum", {x, dim}, {F32({40, 50, 60})}, {{"dtype", nullptr}})});
    EXPECT_GE(CheckOrders(signature, 1e-5), 5u) << dim;
  }
  B b;
  const Json x = b.Input({8, 300}, DType::kBFloat16);
  const TensorSpec out = Spec(DType::kBFloat16, {8, 300});
  CheckOrders(b.Done({b.Call("cumsum", {x, -1}, {out}, {{"dtype", nullptr}})}), 1e-2);
}

TEST(Orders, OfLosses) {
  for (const int reduction : {1, 2}) {
    for (const bool weighted : {false, true}) {
      B b;
      const Json x = b.Input({700, 9}), t = b.Input({700}, DType::kInt64);
      const Json w = weighted ? b.Input({9}) : Json(nullptr);
      const Json loss = b.Call("nll_loss_forward", {x, t, w, reduction, 4}, {F32({}), F32({})});
      EXPECT_GE(CheckOrders(b.Done({loss, B::Other(loss, 1)}), 1e-4), 3u);
      B of_images;
      const Json y = of_images.Input({3, 9, 16, 20});
      const Json u = of_images.Input({3, 16, 20}, DType::kInt64);
      const Json v = weighted ? of_images.Input({9}) : Json(nullptr);
      const Json other =
          of_images.Call("nll_loss2d_forward", {y, u, v, reduction, -100}, {F32({}), F32({})});
      EXPECT_GE(CheckOrders(of_images.Done({other, B::Other(other, 1)}), 1e-4), 3u);
    }
  }
}

}  // namespace
}  // namespace cudaforge
