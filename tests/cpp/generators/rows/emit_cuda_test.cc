#include <algorithm>
#include <cstdio>
#include <span>
#include <tuple>

#include "generators/rows/cuda/plan.h"
#include "target/cuda/nvrtc_compiler.h"
#include "tests/cpp/generators/cuda_host_runs.h"

namespace cudaforge::rows {
namespace {

DeviceArch Hopper() {
  return {.target = "cuda:sm_90a",
          .multiprocessors = 132,
          .max_threads_per_multiprocessor = 2048,
          .shared_bytes_per_block_optin = 232448};
}

TEST(EmitCudaOnHost, RowMappings) {
  HostRuns runs;
  for (int64_t length : {1, 3, 31, 33, 100}) {
    const int items = static_cast<int>((length + 31) / 32);
    runs.Add(SoftmaxCase(5, length), {Mapping::kWarp, 64, 1, items, 2});
    runs.Add(SoftmaxCase(5, length), {Mapping::kLoop, 64, 1, 1, 1});
    runs.Add(SoftmaxCase(5, length), {Mapping::kThread, 32, 1, 4, 1});
  }
  runs.Add(SoftmaxCase(7, 16), {Mapping::kWarp, 64, 4, 1, 8});
  runs.Add(SoftmaxCase(5, 100), {Mapping::kWarp, 64, 4, 1, 2});
  runs.Add(SoftmaxCase(3, 1000), {Mapping::kBlock, 64, 4, 4, 1});
  runs.Add(SoftmaxCase(3, 1000), {Mapping::kLoop, 128, 2, 2, 1});
  runs.Add(SoftmaxCase(3, 1000), {Mapping::kShared, 64, 4, 1, 1});
  for (int vector : {1, 4}) {
    runs.Add(SoftmaxCase(3, 4099), {Mapping::kLoop, 128, vector, 2, 1});
    runs.Add(SoftmaxCase(3, 4099), {Mapping::kShared, 128, vector, 2, 1});
    runs.Add(SoftmaxCase(1, 4099), {Mapping::kLoop, 64, vector, 2, 1});
  }
  runs.Add(SoftmaxCase(3, 1001), {Mapping::kBlock, 64, 4, 4, 1});
  StageCase unaligned = SoftmaxCase(3, 1000);  // read one by one, stored in vectors
  for (Value& value : unaligned.stage.values) value.alignment = 4;
  for (const Mapping mapping : {Mapping::kBlock, Mapping::kLoop, Mapping::kShared}) {
    runs.Add(unaligned, {mapping, 64, 4, 4, 1});
  }
  runs.Add(LayerNormCase(5, 256, DType::kBFloat16), {Mapping::kWarp, 64, 8, 1, 2});
  runs.Add(LayerNormCase(3, 1000, DType::kBFloat16), {Mapping::kBlock, 64, 8, 2, 1});
  runs.Add(LayerNormCase(3, 1003, DType::kBFloat16), {Mapping::kLoop, 64, 8, 1, 1});
  runs.Add(LayerNormCase(3, 1003, DType::kFloat16), {Mapping::kShared, 64, 8, 1, 1});
  runs.Add(BatchCase(3, 5, 12), {Mapping::kBlock, 32, 4, 1, 1});
  runs.Add(BatchCase(3, 5, 7), {Mapping::kLoop, 32, 4, 1, 1});
  runs.Add(BatchCase(3, 5, 7), {Mapping::kWarp, 32, 1, 1, 1});
  runs.Go();
}

TEST(EmitCudaOnHost, Reduces) {
  HostRuns runs;
  const std::vector<ReduceOp> floats = {ReduceOp::kArgMax, ReduceOp::kArgMin, ReduceOp::kMax,
                                        ReduceOp::kMin};
  for (bool specials : {false, true}) {
    runs.Add(ReduceCase(floats, 9, 33, false), {Mapping::kWarp, 64, 1, 2, 2}, specials);
    runs.Add(ReduceCase(floats, 3, 1001, false), {Mapping::kLoop, 128, 4, 1, 1}, specials);
    runs.Add(ReduceCase(floats, 9, 33, true), {Mapping::kColumn, 64, 1, 4, 8}, specials);
    runs.Add(ReduceCase(floats, 8, 33, true), {Mapping::kColumn, 64, 4, 2, 32}, specials);
  }
  runs.Add(ReduceCase({ReduceOp::kAny, ReduceOp::kAll}, 9, 33, false, DType::kBool),
           {Mapping::kWarp, 64, 1, 2, 2});
  runs.Add(ReduceCase({ReduceOp::kAny, ReduceOp::kAll}, 16, 3, true, DType::kBool),
           {Mapping::kThread, 32, 16, 3, 1});
  runs.Add(ReduceCase({ReduceOp::kSum, ReduceOp::kMax}, 3, 1001, false, DType::kInt64),
           {Mapping::kLoop, 64, 2, 2, 1});
  runs.Add(ReduceCase({ReduceOp::kMin, ReduceOp::kSum}, 3, 100, false, DType::kInt32),
           {Mapping::kBlock, 64, 4, 1, 1});
  runs.Add(ReduceCase({ReduceOp::kSum, ReduceOp::kMax}, 3, 100, false, DType::kFloat64),
           {Mapping::kBlock, 64, 2, 1, 1});
  runs.Go();
}

TEST(EmitCudaOnHost, ScansColumnsAndWindows) {
  HostRuns runs;
  for (int64_t length : {1, 31, 1000, 4099}) {
    runs.Add(ScanCase(3, length, false), {Mapping::kLoop, 64, 1, 2, 1});
    runs.Add(ScanCase(3, length, false), {Mapping::kLoop, 128, 4, 1, 1});
    runs.Add(ScanCase(5, length, true), {Mapping::kColumn, 64, 1, 2, 8});
    runs.Add(ScanCase(8, length, true), {Mapping::kColumn, 32, 4, 3, 128});
  }
  runs.Add(ScanCase(3, 100, false, DType::kInt64), {Mapping::kWarp, 64, 2, 2, 2});
  runs.Add(ScanCase(3, 1000, false, DType::kInt64), {Mapping::kBlock, 128, 2, 4, 1});
  runs.Add(ReduceCase({ReduceOp::kSum}, 8, 1000, true), {Mapping::kColumn, 64, 4, 4, 16});
  runs.Add(ReduceCase({ReduceOp::kSum}, 33, 31, true, DType::kBFloat16),
           {Mapping::kColumn, 128, 1, 2, 32});
  runs.Add(ReduceCase({ReduceOp::kSum}, 64, 31, true, DType::kBFloat16),
           {Mapping::kColumn, 64, 8, 4, 64});
  runs.Add(SoftmaxCase(8, 33, true), {Mapping::kColumn, 64, 2, 2, 16});
  runs.Add(SoftmaxCase(12, 33, true), {Mapping::kColumn, 64, 4, 3, 16});
  runs.Add(SoftmaxCase(33, 9, true), {Mapping::kThread, 32, 1, 9, 1});
  runs.Add(MaxPoolCase(2, 7, 9), {Mapping::kThread, 32, 1, 9, 1}, true);
  runs.Add(MaxPoolCase(2, 8, 8), {Mapping::kThread, 32, 4, 9, 1});
  runs.Add(MaxPoolCase(2, 7, 9), {Mapping::kWarp, 64, 1, 2, 8});
  runs.Add(AvgPoolBackwardCase(3, 10), {Mapping::kThread, 32, 2, 2, 1});
  runs.Add(AvgPoolBackwardCase(3, 10), {Mapping::kColumn, 64, 1, 1, 32});
  runs.Go();
}

// No inner space, as in stages that combine partial results or follow a reduce.
TEST(EmitCudaOnHost, RowsWithoutInnerSpace) {
  StageBuilder b({37, 4}, {});
  const int x = b.Load(0, {4, 1}, {});
  const int row = b.Op(ScalarOp::kCast, {x}, Type::kI64);
  b.Store(0, b.Op(ScalarOp::kMul, {x, x}), {4, 1}, {});
  b.Store(1, row, {1, 37}, {}, DType::kInt64);
  const StageCase c{
      "rows", b.stage(), {{DType::kFloat32, 148}}, {{DType::kFloat32, 148}, {DType::kInt64, 148}}};
  HostRuns runs;
  runs.Add(c, {Mapping::kThread, 32, 4, 1, 1});
  runs.Add(c, {Mapping::kColumn, 64, 1, 1, 32});
  runs.Add(c, {Mapping::kWarp, 64, 1, 1, 8});
  runs.Add(c, {Mapping::kLoop, 64, 1, 1, 1});
  for (const Schedule& schedule : CudaSchedules(c.stage, Hopper())) runs.Add(c, schedule);
  runs.Go();
}

// The first schedules of a search.
TEST(EmitCudaOnHost, ChosenSchedules) {
  HostRuns runs;
  for (const StageCase& c : {SoftmaxCase(6, 200), LayerNormCase(3, 768, DType::kBFloat16),
                             SoftmaxCase(64, 40, true), ScanCase(4, 513, false),
                             MaxPoolCase(2, 8, 8), ReduceCase({ReduceOp::kSum}, 2, 5001, false)}) {
    const std::vector<Schedule> schedules = CudaSchedules(c.stage, Hopper());
    ASSERT_FALSE(schedules.empty());
    for (size_t s = 0; s < std::min<size_t>(4, schedules.size()); ++s) runs.Add(c, schedules[s]);
  }
  runs.Go();
}

std::vector<StageCase> RealSizes() {
  return {SoftmaxCase(4096, 1024),
          SoftmaxCase(128, 50257, false, DType::kBFloat16),
          SoftmaxCase(4096, 128, false, DType::kFloat16),
          SoftmaxCase(65536, 64, true),
          LayerNormCase(8192, 4096, DType::kBFloat16),
          LayerNormCase(2048, 768, DType::kFloat32),
          ReduceCase({ReduceOp::kArgMax}, 512, 32000, false),
          ReduceCase({ReduceOp::kSum}, 4096, 8192, true),
          ScanCase(256, 16384, false),
          ScanCase(4096, 1024, true),
          MaxPoolCase(4096, 112, 112),
          AvgPoolBackwardCase(1 << 20, 56),
          BatchCase(64, 128, 784),
          SoftmaxCase(1 << 18, 1 << 13),  // 64-bit indices
          SoftmaxCase(1 << 18, 1 << 13, true)};
}

TEST(EmitCudaNvrtc, FirstSchedulesCompileEverywhereWithoutSpills) {
  const Result<NvrtcCompiler> compiler = NvrtcCompiler::Create();
  if (!compiler.ok()) GTEST_SKIP() << compiler.status().ToString();
  for (const StageCase& c : RealSizes()) {
    const std::vector<Schedule> schedules = CudaSchedules(c.stage, Hopper());
    ASSERT_FALSE(schedules.empty());
    const Result<Candidate> candidate = Emit(c, schedules[0]);
    ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
    for (const char* arch : {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"}) {
      const CompileResult result = compiler->Compile(candidate->source.code, arch);
      ASSERT_TRUE(result.ok) << c.name << " " << arch << "\n" << result.log;
      const Json& used = result.resources.at("rows_stage0");
      EXPECT_EQ(used.at("spill_bytes"), 0)
          << c.name << " " << arch << " " << schedules[0].ToJson(DeviceType::kCuda);
      EXPECT_EQ(used.at("stack_bytes"), 0)
          << c.name << " " << arch << " " << schedules[0].ToJson(DeviceType::kCuda);
      std::printf("%-18s %-8s %3d registers  %s\n", c.name.c_str(), arch,
                  used.at("registers").get<int>(),
                  schedules[0].ToJson(DeviceType::kCuda).dump().c_str());
    }
  }
}

TEST(EmitCudaNvrtc, EveryScheduleCompiles) {
  const Result<NvrtcCompiler> compiler = NvrtcCompiler::Create();
  if (!compiler.ok()) GTEST_SKIP() << compiler.status().ToString();
  for (const StageCase& c : RealSizes()) {
    for (const Schedule& schedule : CudaSchedules(c.stage, Hopper())) {
      const Result<Candidate> candidate = Emit(c, schedule);
      ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
      const CompileResult result = compiler->Compile(candidate->source.code, "sm_90a");
      ASSERT_TRUE(result.ok) << c.name << " " << schedule.ToJson(DeviceType::kCuda) << "\n"
                             << result.log;
      const Json& used = result.resources.at("rows_stage0");
      std::printf("%-18s %3d registers %5d spilled  %s\n", c.name.c_str(),
                  used.at("registers").get<int>(), used.at("spill_bytes").get<int>(),
                  schedule.ToJson(DeviceType::kCuda).dump().c_str());
    }
  }
}

// Operations that integers do not have, and that floats do not have.
constexpr ScalarOp kOnFloats[] = {
    ScalarOp::kExp,     ScalarOp::kExpm1, ScalarOp::kLog,      ScalarOp::kLog1p,
    ScalarOp::kLog2,    ScalarOp::kSqrt,  ScalarOp::kRsqrt,    ScalarOp::kReciprocal,
    ScalarOp::kSin,     ScalarOp::kCos,   ScalarOp::kTanh,     ScalarOp::kErf,
    ScalarOp::kSigmoid, ScalarOp::kGelu,  ScalarOp::kGeluTanh, ScalarOp::kFloor,
    ScalarOp::kCeil,    ScalarOp::kRound, ScalarOp::kTrunc,    ScalarOp::kAtan2};
constexpr ScalarOp kOnBits[] = {ScalarOp::kBitwiseNot, ScalarOp::kAnd, ScalarOp::kOr,
                                ScalarOp::kXor};
bool Contains(std::span<const ScalarOp> ops, ScalarOp op) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

// The prelude has an overload for every operation on every type that may have it.
TEST(EmitCudaNvrtc, EveryOperationCompiles) {
  const Result<NvrtcCompiler> compiler = NvrtcCompiler::Create();
  if (!compiler.ok()) GTEST_SKIP() << compiler.status().ToString();
  const std::vector<std::pair<DType, Type>> types = {{DType::kFloat32, Type::kF32},
                                                     {DType::kFloat64, Type::kF64},
                                                     {DType::kInt64, Type::kI64},
                                                     {DType::kInt32, Type::kI32},
                                                     {DType::kBool, Type::kBool}};
  StageCase c{"operations", {}, {}, {}};
  for (const auto& [dtype, type] : types) {
    c.inputs.push_back({dtype, 4096});
    c.outputs.push_back({dtype, 4096 * 64});
  }
  StageBuilder b({4}, {1024});
  std::vector<int> x;
  for (size_t t = 0; t < types.size(); ++t)
    x.push_back(b.Load(static_cast<int>(t), {1024}, {1}, types[t].first));
  auto store = [&](int v, size_t t) {
    b.Store(static_cast<int>(t), v, {1024 * 64}, {64}, types[t].first);
  };
  for (size_t t = 0; t < types.size(); ++t) {
    const Type type = types[t].second;
    const bool floating = t < 2, boolean = type == Type::kBool;
    for (int i = 0; i < kScalarOps; ++i) {
      const ScalarOp op = static_cast<ScalarOp>(i);
      const std::vector<int> operands(ScalarFactsOf(op).operands, x[t]);
      if (op == ScalarOp::kCast) {
        for (size_t to = 0; to < types.size(); ++to)
          store(b.Op(op, operands, types[to].second), to);
      } else if (op == ScalarOp::kWhere) {
        store(b.Op(op, {x[4], x[t], x[t]}, type), t);
      } else if (ScalarFactsOf(op).gives_bool) {
        store(b.Op(op, operands, Type::kBool), 4);
      } else if (op == ScalarOp::kRoundToHalf || op == ScalarOp::kRoundToBF16) {
        if (type == Type::kF32) store(b.Op(op, operands, type), t);
      } else if (Contains(kOnBits, op) ? !floating
                                       : !boolean && (floating || !Contains(kOnFloats, op))) {
        store(b.Op(op, operands, type), t);
      }
    }
  }
  c.stage = b.stage();
  for (size_t s = 0; s < c.stage.stores.size(); ++s) {
    c.stage.stores[s].access.dims[0].offset = static_cast<int64_t>(s % 64);
  }
  const Result<Candidate> candidate = Emit(c, {Mapping::kLoop, 128, 1, 1, 1});
  ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
  const CompileResult result = compiler->Compile(candidate->source.code, "sm_90a");
  EXPECT_TRUE(result.ok) << result.log.substr(0, 3000);
}

TEST(EmitCuda, EachStageIsALaunchWithScratch) {
  StageCase first = ReduceCase({ReduceOp::kSum}, 64, 1000, false);
  StageCase second = ReduceCase({ReduceOp::kSum}, 8, 8, false);
  first.stage.stores[0].buffer = {BufferKind::kScratch, 0};
  second.stage.values[0].buffer = {BufferKind::kScratch, 0};
  Program program;
  program.scratch_bytes = {256};
  program.stages = {first.stage, second.stage};
  StageCase whole{"two stages", {}, first.inputs, second.outputs};
  const OpSignature signature = SignatureOf(whole);
  const Result<Candidate> candidate = EmitCuda(
      program, signature, {{Mapping::kBlock, 128, 4, 2, 1}, {Mapping::kThread, 32, 1, 8, 1}});
  ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
  EXPECT_TRUE(candidate->Validate(signature).ok());
  EXPECT_EQ(candidate->author, "generator:rows");
  ASSERT_EQ(candidate->plan.launches.size(), 2u);
  EXPECT_EQ(candidate->plan.launches[0].args[0].kind, LaunchArg::Kind::kScratch);
  EXPECT_EQ(candidate->plan.launches[1].args[1].kind, LaunchArg::Kind::kScratch);
  EXPECT_EQ(candidate->plan.launches[0].grid[0].text(), "64");
  ASSERT_EQ(candidate->plan.scratch_bytes.size(), 1u);
  EXPECT_EQ(candidate->params["stages"][1]["mapping"], "thread");
  // The same program and schedules give the same text.
  EXPECT_EQ(candidate->source.code,
            EmitCuda(program, signature,
                     {{Mapping::kBlock, 128, 4, 2, 1}, {Mapping::kThread, 32, 1, 8, 1}})
                ->source.code);
}

TEST(EmitCuda, SchedulesOutOfRangeAreErrors) {
  const StageCase c = SoftmaxCase(4, 4096);
  EXPECT_FALSE(Emit(c, {Mapping::kBlock, 64, 1, 4, 1}).ok());    // does not fit
  EXPECT_FALSE(Emit(c, {Mapping::kWarp, 256, 1, 4, 1}).ok());    // group over a warp
  EXPECT_FALSE(Emit(c, {Mapping::kLoop, 100, 1, 4, 1}).ok());    // no power of two
  EXPECT_FALSE(Emit(c, {Mapping::kLoop, 2048, 1, 4, 1}).ok());   // too many threads
  EXPECT_FALSE(Emit(c, {Mapping::kBuffer, 128, 1, 4, 1}).ok());  // a CPU's
  EXPECT_FALSE(Emit(SoftmaxCase(4, 1 << 20), {Mapping::kShared, 256, 4, 4, 1}).ok());
}

TEST(EmitCuda, UnalignedInputsUseNarrowerVectors) {
  StageCase c = SoftmaxCase(4, 4096);
  for (const auto& [alignment, vector, reads_vectors] :
       {std::tuple(16, 4, true), std::tuple(8, 4, false), std::tuple(8, 2, true),
        std::tuple(4, 2, false)}) {
    for (Value& value : c.stage.values) value.alignment = alignment;
    const Schedule schedule{Mapping::kLoop, 128, vector, 1, 1};
    const Result<CudaPlan> plan = MakeCudaPlan(c.stage, schedule);
    ASSERT_TRUE(plan.ok());
    const auto& loads = plan->vector_load;
    EXPECT_EQ(std::count(loads.begin(), loads.end(), true) > 0, reads_vectors) << alignment;
    EXPECT_EQ(std::count(plan->vector_store.begin(), plan->vector_store.end(), true), 1)
        << "outputs begin aligned";
    EXPECT_TRUE(Emit(c, schedule)->constraints.empty());
  }
}

}  // namespace
}  // namespace cudaforge::rows
