// Outputs that are the same for all inputs.
#include <gtest/gtest.h>

#include "tests/cpp/verify/region_aten.h"
#include "verify/input_plan.h"
#include "verify/match.h"

namespace cudaforge {
namespace {

OpSignature Loss(int64_t reduction, std::vector<int64_t> sizes = {64, 10}) {
  const bool one = sizes.size() == 1;
  const TensorSpec loss = one || reduction != 0 ? F32({}) : F32({sizes[0]});
  const TensorSpec target = Spec(DType::kInt64, one ? std::vector<int64_t>{} : loss.sizes);
  return Region({F32(sizes), reduction == 0 ? target : Spec(DType::kInt64, {sizes[0]})},
                "aten::nll_loss_forward", {In(0), In(1), nullptr, reduction, -100},
                {loss, F32({})});
}

OpSignature Place(const std::string& op, std::vector<int64_t> sizes, Json dim) {
  const TensorSpec place = Spec(DType::kInt64, {4});
  if (op.starts_with("aten::arg")) return Region({F32(sizes)}, op, {In(0), dim, false}, {place});
  return Region({F32(sizes)}, op, {In(0), dim, false}, {F32({4}), place});
}

std::vector<std::string> AtenOn(const OpSignature& signature, const InputSet& set) {
  std::vector<std::string> outputs;
  for (const at::Tensor& t :
       (*RegionProgram::Create(signature))->RunStrided(Tensors(signature, set))) {
    outputs.push_back(BytesOf(t));
  }
  return outputs;
}

TEST(Constants, FollowFromTheOpAndItsArguments) {
  EXPECT_TRUE(IsConstant(Loss(0), 1));
  EXPECT_FALSE(IsConstant(Loss(0), 0));
  EXPECT_FALSE(IsConstant(Loss(1), 1));
  EXPECT_FALSE(IsConstant(Loss(2), 1));
  EXPECT_FALSE(IsConstant(Loss(0, {10}), 1)) << "of one row ATen has its weight";
  OpSignature loss2d = Loss(0, {2, 5, 3, 3});
  loss2d.nodes[0].op = "aten::nll_loss2d_forward";
  EXPECT_TRUE(IsConstant(loss2d, 1));
  loss2d.device = DeviceType::kCuda;
  EXPECT_FALSE(IsConstant(loss2d, 1)) << "not written there";

  EXPECT_TRUE(IsConstant(Place("aten::max.dim", {4, 1}, -1), 1));
  EXPECT_FALSE(IsConstant(Place("aten::max.dim", {4, 1}, -1), 0));
  EXPECT_FALSE(IsConstant(Place("aten::max.dim", {4, 2}, -1), 1));
  EXPECT_TRUE(IsConstant(Place("aten::argmin", {1, 4}, 0), 0));
  EXPECT_FALSE(IsConstant(Place("aten::argmin", {1, 4}, nullptr), 0));
  EXPECT_TRUE(IsConstant(Place("aten::argmax", {1, 1}, nullptr), 0));
  EXPECT_TRUE(
      IsConstant(Region({F32({0, 3})}, "aten::relu", Json::array({In(0)}), {F32({0, 3})}), 0));
  EXPECT_FALSE(IsConstant(
      Region({F32({4})}, "aten::gt.Scalar", {In(0), 1e30}, {Spec(DType::kBool, {4})}), 0));
}

TEST(Constants, DoNotHideWhatStandsBesideThemAndAreCompared) {
  const OpSignature signature = Loss(0);
  const auto checker = Make(signature);
  ASSERT_NE(checker, nullptr);
  for (size_t i = 0; i < checker->case_count(); ++i) {
    std::vector<std::string> outputs = AtenOn(signature, checker->inputs(i));
    EXPECT_TRUE(checker->Check(i, outputs).accepted());
    for (const float wrong : {-0.0F, 1e-45F, 64.0F}) {
      std::vector<std::string> other = outputs;
      other[1] = {reinterpret_cast<const char*>(&wrong), sizeof(wrong)};
      EXPECT_EQ(checker->Check(i, other).kind, VerdictKind::kWrongValues) << wrong;
    }
    outputs[0][3] ^= 1;  // an exponent bit of the first loss
    EXPECT_EQ(checker->Check(i, outputs).kind, VerdictKind::kWrongValues);
  }
}

TEST(Constants, MayBeAllThatARegionHas) {
  const OpSignature signature = Place("aten::argmax", {4, 1}, 1);
  const auto checker = Make(signature);
  ASSERT_NE(checker, nullptr);
  std::string zeros(32, '\0');
  EXPECT_TRUE(checker->Check(0, {&zeros, 1}).accepted());
  zeros[8] = 1;
  EXPECT_FALSE(checker->Check(0, {&zeros, 1}).accepted());
}

TEST(Constants, AreNotToldByWhatInputsHappenToGive) {
  const OpSignature signature =
      Region({F32({8, 40})}, "aten::eq.Scalar", {In(0), 12345.678}, {Spec(DType::kBool, {8, 40})});
  EXPECT_EQ(RegionChecker::Create(signature, 0, 1).status().code(), StatusCode::kUnsupported);
}

TEST(Constants, TakeNoDraws) {
  const OpSignature large = Loss(0, {8192, 4});
  EXPECT_EQ(PlanInputs(large, *FindRoles(large)).draws, 0);
  EXPECT_FALSE(PlanInputs(large, *FindRoles(large)).twice);
}

}  // namespace
}  // namespace cudaforge
