#include "verify/input_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/cpp/verify/spec.h"

namespace cudaforge {
namespace {

// The sum of a vector of so many bytes into one element.
OpSignature SumOf(DType dtype, int64_t bytes) {
  OpSignature signature;
  signature.inputs = {Spec(dtype, {bytes / DTypeSize(dtype)})};
  Node node;
  node.op = "aten::sum";
  node.args = Json::array({Json{{"in", 0}}});
  node.outputs = {Spec(dtype, {})};
  signature.nodes = {node};
  signature.outputs = {{0, 0}};
  return signature;
}

InputPlan PlanFor(const OpSignature& signature) {
  return PlanInputs(signature, *FindRoles(signature));
}

bool Has(const InputPlan& plan, InputKind kind) {
  return std::find(plan.kinds.begin(), plan.kinds.end(), kind) != plan.kinds.end();
}

bool SomeAreLeastAligned(const InputPlan& plan) {
  return std::any_of(plan.kinds.begin(), plan.kinds.end(), IsLeastAligned);
}

TEST(PlanInputs, SmallRegionsGetEverySet) {
  for (const int64_t bytes : {1 << 18, 1 << 20}) {
    const OpSignature signature = SumOf(DType::kFloat32, bytes);
    std::vector<InputKind> kinds = InputKindsFor(signature, *FindRoles(signature));
    std::vector<InputKind> planned = PlanFor(signature).kinds;
    if (bytes > 1 << 18) {  // of kOneSpecial not every turn
      planned.erase(std::unique(planned.begin(), planned.end()), planned.end());
      kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
    }
    EXPECT_EQ(planned, kinds);
  }
}

// Outputs of few elements take many draws of the other sets.
TEST(PlanInputs, TurnsOfOneSpecialAreFewWhereTheyWouldCostMuch) {
  const auto turns = [](const OpSignature& signature) {
    const InputPlan plan = PlanFor(signature);
    return std::count(plan.kinds.begin(), plan.kinds.end(), InputKind::kOneSpecial);
  };
  EXPECT_EQ(turns(SumOf(DType::kFloat32, 1 << 18)), 8);
  EXPECT_EQ(turns(SumOf(DType::kFloat32, 1 << 20)), 4);
  EXPECT_EQ(turns(SumOf(DType::kFloat32, 1 << 24)), 1);
  EXPECT_EQ(turns(SumOf(DType::kFloat32, int64_t{33} << 20)), 1);
  OpSignature copy = SumOf(DType::kFloat32, 1 << 20);
  copy.nodes[0].op = "aten::clone";
  copy.nodes[0].outputs = copy.inputs;
  EXPECT_EQ(turns(copy), 1);
}

TEST(PlanInputs, ACandidateInDoubtGetsFewerMoreSetsOfALargeRegion) {
  EXPECT_EQ(PlanFor(SumOf(DType::kFloat32, int64_t{1} << 19)).sets_in_doubt, 16);
  EXPECT_EQ(PlanFor(SumOf(DType::kFloat32, int64_t{2} << 20)).sets_in_doubt, 7);
  EXPECT_EQ(PlanFor(SumOf(DType::kFloat32, int64_t{33} << 20)).sets_in_doubt, 4);
}

TEST(PlanInputs, LargeFloatingRegions) {
  const InputPlan large = PlanFor(SumOf(DType::kFloat32, int64_t{33} << 20));
  EXPECT_EQ(large.kinds.size(), 5u);
  const InputPlan huge = PlanFor(SumOf(DType::kFloat32, int64_t{257} << 20));
  EXPECT_EQ(huge.kinds.size(), 4u);
  for (const InputPlan& plan : {large, huge}) {
    EXPECT_TRUE(Has(plan, InputKind::kSpecialValues) && Has(plan, InputKind::kMixed));
    EXPECT_TRUE(Has(plan, InputKind::kOneSpecial));
    EXPECT_TRUE(SomeAreLeastAligned(plan));
  }
}

TEST(PlanInputs, LargeRegionsWithASmallOperand) {
  for (const auto& [mebibytes, sets] : {std::pair{33, 7u}, {257, 5u}}) {
    OpSignature signature = SumOf(DType::kFloat32, int64_t{mebibytes} << 20);
    signature.inputs.push_back(Spec(DType::kFloat32, {8}));
    const InputPlan plan = PlanFor(signature);
    EXPECT_EQ(plan.kinds.size(), sets);
    EXPECT_TRUE(Has(plan, InputKind::kNanOperands));
    EXPECT_EQ(Has(plan, InputKind::kInfiniteOperands), mebibytes == 33);
  }
}

// The large numbers of kRowScales overflow an accumulator that is too narrow.
TEST(PlanInputs, LargeIntegerRegions) {
  for (const int64_t mebibytes : {33, 257}) {
    const InputPlan plan = PlanFor(SumOf(DType::kInt64, mebibytes << 20));
    EXPECT_GE(plan.kinds.size(), 3u) << mebibytes;
    EXPECT_TRUE(Has(plan, InputKind::kRowScales)) << mebibytes;
    EXPECT_TRUE(SomeAreLeastAligned(plan)) << mebibytes;
  }
}

TEST(PlanInputs, SmallOutputsGetMoreDraws) {
  const InputPlan one = PlanFor(SumOf(DType::kFloat32, 4096));
  EXPECT_GT(one.draws, 2);
  EXPECT_TRUE(one.twice);
  const InputPlan large = PlanFor(SumOf(DType::kFloat32, int64_t{257} << 20));
  EXPECT_GE(large.draws, 2);
  EXPECT_FALSE(large.twice);
  EXPECT_EQ(PlanFor(SumOf(DType::kInt64, 4096)).draws, 0);
}

}  // namespace
}  // namespace cudaforge
