#include "generators/rows/rewrite/fuse.h"

#include "generators/rows/cuda/plan.h"
#include "generators/rows/stage_loops.h"
#include "tests/cpp/generators/cuda_host_runs.h"
#include "tests/cpp/generators/region.h"

namespace cudaforge::rows {
namespace {

OpSignature LayerNormBackward(int64_t rows, int64_t length, DType dtype = DType::kFloat32,
                              std::vector<bool> wanted = {true, true, true}) {
  Region region;
  const Json grad = region.Input(Spec({rows, length}, dtype));
  const Json x = region.Input(Spec({rows, length}, dtype));
  const Json mean = region.Input(Spec({rows, 1})), rstd = region.Input(Spec({rows, 1}));
  const Json weight = region.Input(Spec({length}, dtype));
  region.Call("native_layer_norm_backward",
              {grad, x, {length}, mean, rstd, weight, weight, Json(wanted)},
              {Spec({rows, length}, dtype), Spec({length}, dtype), Spec({length}, dtype)});
  OpSignature signature = region.Signature();
  signature.device = DeviceType::kCuda;
  return signature;
}

// Rows minus their mean, and the sum over them, which reads the first stage's results.
OpSignature CentredRowsAndTheirSum(int64_t rows, int64_t length, bool rows_asked_for = true) {
  Region region;
  const Json x = region.Input(Spec({rows, length}));
  const int mean = region.Call("mean.dim", {x, {1}, true}, {Spec({rows, 1})});
  const int centred = region.Call("sub.Tensor", {x, Out(mean)}, {Spec({rows, length})});
  const int sum = region.Call("sum.dim_IntList", {Out(centred), {0}, false}, {Spec({length})});
  if (rows_asked_for) region.Output(centred);
  region.Output(sum);
  OpSignature signature = region.Signature();
  signature.device = DeviceType::kCuda;
  return signature;
}

void ExpectSameResults(const OpSignature& signature, const Program& a, const Program& b) {
  ASSERT_TRUE(b.Validate(signature).ok()) << b.Validate(signature).ToString() << b.ToString();
  const std::vector<Memory> inputs = RandomInputs(signature);
  const auto want = ProgramRunner::Run(a, signature, inputs);
  const auto got = ProgramRunner::Run(b, signature, inputs);
  for (size_t o = 0; o < want.size(); ++o) {
    for (size_t i = 0; i < want[o].size(); ++i) EXPECT_NEAR(got[o][i].f, want[o][i].f, 1e-9);
  }
}

// The number of element loads of a stage.
int64_t ElementLoads(const Stage& stage) {
  int64_t loads = 0;
  for (int v : LiveValues(stage)) {
    const Value& value = stage.values[static_cast<size_t>(v)];
    loads += value.kind == Value::Kind::kLoad && value.space == Space::kElement ? 1 : 0;
  }
  return loads;
}

TEST(Fuse, LayerNormBackwardReadsItsInputsOnce) {
  for (int64_t rows : {8, 37, 64}) {
    const OpSignature signature = LayerNormBackward(rows, 24);
    const Program program = *Lower(signature);
    for (int64_t runs : {2, 5, 16, 1000}) {
      const Result<Program> fused = FuseColumnSums(program, runs);
      ASSERT_TRUE(fused.ok()) << fused.status().ToString();
      ASSERT_EQ(fused->stages.size(), 2u) << fused->ToString();
      EXPECT_EQ(fused->stages[0].run_sums.size(), 2u);
      EXPECT_GE(fused->stages[0].rows_per_run, 4);
      EXPECT_EQ(ElementLoads(fused->stages[0]), 3) << fused->ToString();  // grad, x, weight
      ExpectSameResults(signature, program, *fused);
    }
  }
}

TEST(Fuse, SumsOfRowResultsNeedNoLoad) {
  const OpSignature signature = CentredRowsAndTheirSum(40, 24);
  const Program program = *Lower(signature);
  const Result<Program> fused = FuseColumnSums(program, 8);
  ASSERT_TRUE(fused.ok()) << fused.status().ToString() << program.ToString();
  EXPECT_EQ(fused->stages.size(), 2u);
  EXPECT_EQ(ElementLoads(fused->stages[0]), 1);
  // Nothing reads the rows' means now.
  EXPECT_EQ(fused->stages[0].stores.size(), 1u) << fused->ToString();
  ExpectSameResults(signature, program, *fused);
}

TEST(Fuse, DuplicateSumIsMerged) {
  Region region;
  const Json x = region.Input(Spec({64, 48}));
  region.Output(region.Call("_softmax", {x, 1, false}, {Spec({64, 48})}));
  region.Output(region.Call("sum.dim_IntList", {x, {0}, false}, {Spec({48})}));
  region.Output(region.Call("sum.dim_IntList", {x, {0}, true}, {Spec({1, 48})}));
  OpSignature signature = region.Signature();
  signature.device = DeviceType::kCuda;
  const Program program = *Lower(signature);
  const Result<Program> fused = FuseColumnSums(program, 8);
  ASSERT_TRUE(fused.ok()) << fused.status().ToString() << program.ToString();
  ExpectSameResults(signature, program, *fused);
}

TEST(Fuse, UnreadBuffersAreRemoved) {
  const OpSignature signature = CentredRowsAndTheirSum(64, 48, false);
  const Program program = *Lower(signature);
  ASSERT_GT(program.stages.size(), 1u) << "the rows have no stage of their own";
  const Result<Program> fused = FuseColumnSums(program, 8);
  ASSERT_TRUE(fused.ok()) << fused.status().ToString() << program.ToString();
  ExpectSameResults(signature, program, *fused);
  EXPECT_TRUE(fused->stages[0].stores.empty()) << fused->ToString();
  EXPECT_EQ(fused->scratch_bytes, (std::vector<int64_t>{8 * 48 * 4}));
}

TEST(Fuse, RefusesStagesWithoutSharedElements) {
  Region region;
  const Json x = region.Input(Spec({40, 24})), y = region.Input(Spec({40, 24}));
  const int a = region.Call("_softmax", {x, 1, false}, {Spec({40, 24})});
  const int b = region.Call("sum.dim_IntList", {y, {0}, false}, {Spec({24})});
  region.Output(a);
  region.Output(b);
  EXPECT_EQ(FuseColumnSums(*Lower(region.Signature()), 8).status().code(),
            StatusCode::kUnsupported);
  // Too few rows for a run.
  EXPECT_FALSE(FuseColumnSums(*Lower(LayerNormBackward(7, 24)), 8).ok());
  // The rows depend on the columns' results.
  Region centred;
  const Json z = centred.Input(Spec({40, 24}));
  const int mean = centred.Call("mean.dim", {z, {0}, true}, {Spec({1, 24})});
  const int moved = centred.Call("sub.Tensor", {z, Out(mean)}, {Spec({40, 24})});
  centred.Call("_softmax", {Out(moved), 1, false}, {Spec({40, 24})});
  const Program program = *Lower(centred.Signature());
  ASSERT_GE(program.stages.size(), 2u);
  EXPECT_FALSE(FuseColumnSums(program, 8).ok());
}

TEST(FuseOnHost, KernelsSumOverRuns) {
  HostRuns host;
  const Schedule combine{Mapping::kColumn, 128, 1, 2, 8};
  struct Case {
    int64_t rows, length, runs;
    Schedule schedule;
    DType dtype = DType::kFloat32;
  };
  const std::vector<Case> cases = {
      {64, 512, 8, {Mapping::kBlock, 128, 4, 1, 1}},
      {61, 512, 8, {Mapping::kBlock, 64, 4, 2, 1}},
      {37, 500, 5, {Mapping::kBlock, 64, 4, 2, 1}},
      {37, 501, 5, {Mapping::kBlock, 64, 4, 2, 1}},
      {64, 64, 9, {Mapping::kWarp, 64, 4, 1, 4}},
      {61, 64, 7, {Mapping::kWarp, 128, 2, 1, 4}},
      {61, 30, 7, {Mapping::kWarp, 128, 1, 1, 4}},
      {61, 64, 15, {Mapping::kWarp, 64, 8, 1, 8}, DType::kBFloat16},
      {40, 1000, 10, {Mapping::kBlock, 64, 8, 2, 1}, DType::kFloat16},
  };
  for (const Case& c : cases) {
    const OpSignature signature = LayerNormBackward(c.rows, c.length, c.dtype);
    const Program program = *Lower(signature);
    const Result<Program> fused = FuseColumnSums(program, c.runs);
    ASSERT_TRUE(fused.ok());
    host.Add("layer_norm_backward", signature, program, *fused, {c.schedule, combine});
    if (c.dtype != DType::kFloat32) continue;
    const OpSignature centred = CentredRowsAndTheirSum(c.rows, c.length);
    const Program plain = *Lower(centred);
    host.Add("centred", centred, plain, *FuseColumnSums(plain, c.runs), {c.schedule, combine});
  }
  host.Go();
}

TEST(FuseOnHost, ChosenSchedules) {
  const DeviceArch hopper{.target = "cuda:sm_90a",
                          .multiprocessors = 132,
                          .max_threads_per_multiprocessor = 2048,
                          .shared_bytes_per_block_optin = 232448};
  HostRuns host;
  for (int64_t length : {48, 256, 1000}) {
    const OpSignature signature = LayerNormBackward(50, length);
    const Program program = *Lower(signature);
    const Program fused = *FuseColumnSums(program, 12);
    const auto first = CudaSchedules(fused.stages[0], hopper);
    const auto second = CudaSchedules(fused.stages[1], hopper);
    ASSERT_GE(first.size(), 3u);
    ASSERT_FALSE(second.empty());
    for (const Schedule& schedule : first) {
      EXPECT_TRUE(schedule.mapping == Mapping::kWarp || schedule.mapping == Mapping::kBlock);
    }
    for (size_t s = 0; s < 3; ++s) {
      host.Add("chosen", signature, program, fused, {first[s], second[s % second.size()]});
    }
  }
  host.Go();
}

// Rows outside registers, or with varying vector alignment: no such kernel.
TEST(Fuse, PlansRefuseRowsOutsideRegisters) {
  const Program fused = *FuseColumnSums(*Lower(LayerNormBackward(64, 512)), 8);
  for (const Schedule& schedule :
       {Schedule{Mapping::kLoop, 64, 4, 1, 1}, Schedule{Mapping::kShared, 64, 4, 1, 1},
        Schedule{Mapping::kColumn, 64, 1, 1, 8}, Schedule{Mapping::kWarp, 64, 4, 2, 2}}) {
    const auto plan = MakeCudaPlan(fused.stages[0], schedule);
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace cudaforge::rows
