#include "generators/rows/row_program.h"

#include <gtest/gtest.h>

#include "tests/cpp/generators/region.h"

namespace cudaforge::rows {
namespace {

OpSignature Softmax() {
  Region region;
  region.Call("_softmax", {region.Input(Spec({4, 8})), -1, false}, {Spec({4, 8})});
  return region.Signature();
}

TEST(RowProgram, TextOfSoftmax) {
  const OpSignature signature = Softmax();
  EXPECT_EQ(Lower(signature)->ToString(),
            "stage 0 outer [4] inner [8]\n"
            "  %0 f32 element = load in0:float32[8*o0+i0]\n"
            "  %1 f32 row = reduce max %0\n"
            "  %2 f32 element = sub %0 %1\n"
            "  %3 f32 element = exp %2\n"
            "  %4 f32 row = reduce sum %3\n"
            "  %5 f32 element = div %3 %4\n"
            "  store %5 -> out0:float32[8*o0+i0]\n");
}

TEST(RowProgram, TextOfAveragePool) {
  Region region;
  region.Call("avg_pool2d",
              {region.Input(Spec({2, 4, 4})), {2, 2}, {2, 2}, {0, 0}, false, true, nullptr},
              {Spec({2, 2, 2})});
  EXPECT_EQ(Lower(region.Signature())->ToString(),
            "stage 0 outer [4, 2] inner [2, 2]\n"
            "  %0 f32 element = load in0:float32[8*o0+2*o1+4*i0+i1]\n"
            "  %1 f32 row = reduce sum %0\n"
            "  %2 f32 const = const 4\n"
            "  %3 f32 row = div %1 %2\n"
            "  store %3 -> out0:float32[2*o0+o1]\n");
}

TEST(RowProgram, SweepsFollowReductions) {
  const Program program = *Lower(Softmax());
  EXPECT_EQ(program.stages[0].SweepOfValues(), (std::vector<int>{0, 0, 1, 1, 1, 2}));
}

TEST(RowProgram, ValidateFindsFaults) {
  const OpSignature signature = Softmax();
  const Program good = *Lower(signature);
  ASSERT_TRUE(good.Validate(signature).ok());
  auto fails = [&](auto change) {
    Program bad = good;
    change(bad);
    return !bad.Validate(signature).ok();
  };
  EXPECT_TRUE(fails([](Program& p) { p.stages.clear(); }));
  EXPECT_TRUE(fails([](Program& p) { p.stages[0].stores.clear(); }));
  EXPECT_TRUE(fails([](Program& p) { p.stages[0].outer[0] = 0; }));
  EXPECT_TRUE(fails([](Program& p) { p.stages[0].values[2].operands[1] = 3; }));
  EXPECT_TRUE(fails([](Program& p) { p.stages[0].values[3].type = Type::kI64; }));
  EXPECT_TRUE(fails([](Program& p) { p.stages[0].values[1].space = Space::kElement; }));
  EXPECT_TRUE(fails([](Program& p) { p.stages[0].values[0].buffer.index = 1; }));
  EXPECT_TRUE(fails([](Program& p) { p.stages[0].values[0].access.dims[0].inner_coef = {}; }));
  EXPECT_TRUE(fails([](Program& p) { p.stages[0].values[0].access.dims[0].bound = 8; }));
  EXPECT_TRUE(fails([](Program& p) { p.stages[0].stores[0].buffer.kind = BufferKind::kInput; }));
  EXPECT_TRUE(fails([](Program& p) { p.stages[0].stores[0].value = 4; }));
  EXPECT_TRUE(fails([](Program& p) { p.stages[0].stores[0].storage = DType::kInt64; }));
}

}  // namespace
}  // namespace cudaforge::rows
