// Which outputs are the same for all inputs.
#include "verify/match.h"

#include <gtest/gtest.h>

#include "tests/cpp/verify/drawn.h"

namespace cudaforge {
namespace {

OpSignature LossOf(int64_t reduction, std::vector<int64_t> sizes = {64, 10}) {
  const TensorSpec x = Spec(DType::kFloat32, sizes), number = Spec(DType::kFloat32, {});
  const bool one = sizes.size() == 1;
  const TensorSpec loss = one || reduction != 0 ? number : Spec(DType::kFloat32, {sizes[0]});
  const TensorSpec labels =
      Spec(DType::kInt64, one ? std::vector<int64_t>{} : std::vector<int64_t>{sizes[0]});
  return Call("aten::nll_loss_forward", {Arg(0), Arg(1), nullptr, reduction, -100}, {x, labels},
              {loss, number});
}

OpSignature PlaceOf(const std::string& op, std::vector<int64_t> sizes, Json dim) {
  const TensorSpec x = Spec(DType::kFloat32, std::move(sizes)), place = Spec(DType::kInt64, {4});
  if (op.starts_with("aten::arg")) return Call(op, {Arg(0), dim, false}, {x}, {place});
  return Call(op, {Arg(0), dim, false}, {x}, {Spec(DType::kFloat32, {4}), place});
}

TEST(IsConstant, FollowsFromTheOpAndItsArguments) {
  EXPECT_TRUE(IsConstant(LossOf(0), 1));
  EXPECT_FALSE(IsConstant(LossOf(0), 0));
  EXPECT_FALSE(IsConstant(LossOf(1), 1));
  EXPECT_FALSE(IsConstant(LossOf(2), 1));
  EXPECT_FALSE(IsConstant(LossOf(0, {10}), 1)) << "of one row ATen has its weight";
  OpSignature loss2d = LossOf(0, {2, 5, 3, 3});
  loss2d.nodes[0].op = "aten::nll_loss2d_forward";
  EXPECT_TRUE(IsConstant(loss2d, 1));
  loss2d.device = DeviceType::kCuda;
  EXPECT_FALSE(IsConstant(loss2d, 1)) << "not written there";

  EXPECT_TRUE(IsConstant(PlaceOf("aten::max.dim", {4, 1}, -1), 1));
  EXPECT_FALSE(IsConstant(PlaceOf("aten::max.dim", {4, 1}, -1), 0));
  EXPECT_FALSE(IsConstant(PlaceOf("aten::max.dim", {4, 2}, -1), 1));
  EXPECT_TRUE(IsConstant(PlaceOf("aten::argmin", {1, 4}, 0), 0));
  EXPECT_FALSE(IsConstant(PlaceOf("aten::argmin", {1, 4}, nullptr), 0));
  EXPECT_TRUE(IsConstant(PlaceOf("aten::argmax", {1, 1}, nullptr), 0));
  const TensorSpec empty = Spec(DType::kFloat32, {0, 3}), four = Spec(DType::kFloat32, {4});
  EXPECT_TRUE(IsConstant(Call("aten::relu", Json::array({Arg(0)}), {empty}, {empty}), 0));
  EXPECT_FALSE(
      IsConstant(Call("aten::gt.Scalar", {Arg(0), 1e30}, {four}, {Spec(DType::kBool, {4})}), 0));
}

}  // namespace
}  // namespace cudaforge
