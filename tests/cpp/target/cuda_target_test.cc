#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "target/cuda/driver_api.h"
#include "target/target.h"

namespace cudaforge {
namespace {

constexpr int64_t kRows = 64;
constexpr int64_t kColumns = 1000;
constexpr int64_t kBytes = kRows * kColumns * 4;

constexpr char kCudaSource[] = R"(
extern "C" __global__ void scale(const float* x, float* y, long long columns, double factor) {
  for (long long c = threadIdx.x; c < columns; c += blockDim.x) {
    y[blockIdx.x * columns + c] = x[blockIdx.x * columns + c] * static_cast<float>(factor);
  }
}
extern "C" __global__ void reverse(const float* x, float* y, long long columns, double) {
  extern __shared__ float row[];
  for (long long c = threadIdx.x; c < columns; c += blockDim.x) row[c] = x[blockIdx.x * columns + c];
  __syncthreads();
  for (long long c = threadIdx.x; c < columns; c += blockDim.x) y[blockIdx.x * columns + c] = row[columns - 1 - c];
}
extern "C" __global__ void count_blocks(const float*, float* y, int* arrived, long long blocks) {
  if (threadIdx.x != 0) return;
  atomicAdd(arrived, 1);
  while (*(volatile int*)arrived < blocks) {}
  y[blockIdx.x] = static_cast<float>(*(volatile int*)arrived);
}
extern "C" __global__ void dependent(const float*, float* y, long long columns, double) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  for (long long c = threadIdx.x; c < columns; c += blockDim.x) y[blockIdx.x * columns + c] += 1.0f;
}
extern "C" __global__ void stray(const float*, float*, long long, double) { *(volatile float*)16 = 1.0f; }
extern "C" __global__ void narrow(const float*, float*, int, double) {}
)";

// y[i] = x[i] * factor in doubles.
constexpr char kPtxSource[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 x, .param .u64 y, .param .s64 columns, .param .f64 factor) {
  .reg .pred %done;
  .reg .b32 %block, %thread, %step;
  .reg .b64 %x, %y, %n, %c, %i, %row, %at;
  .reg .f32 %value;
  .reg .f64 %wide, %factor;
  ld.param.u64 %x, [x];
  ld.param.u64 %y, [y];
  ld.param.s64 %n, [columns];
  ld.param.f64 %factor, [factor];
  mov.u32 %block, %ctaid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %step, %ntid.x;
  cvt.u64.u32 %c, %thread;
  cvt.u64.u32 %row, %block;
  mul.lo.s64 %row, %row, %n;
loop:
  setp.ge.s64 %done, %c, %n;
  @%done bra end;
  add.s64 %i, %row, %c;
  shl.b64 %i, %i, 2;
  add.s64 %at, %x, %i;
  ld.global.f32 %value, [%at];
  cvt.f64.f32 %wide, %value;
  mul.f64 %wide, %wide, %factor;
  cvt.rn.f32.f64 %value, %wide;
  add.s64 %at, %y, %i;
  st.global.f32 [%at], %value;
  cvt.u64.u32 %at, %step;
  add.s64 %c, %c, %at;
  bra loop;
end:
  ret;
}
)";

OpSignature CudaSignature() {
  OpSignature signature;
  signature.device = DeviceType::kCuda;
  const TensorSpec spec{DType::kFloat32, {kRows, kColumns}, {kColumns, 1}, 16};
  signature.inputs = {spec};
  Node node;
  node.op = "aten::relu";
  node.args = Json::array({Json{{"in", 0}}});
  node.outputs = {spec};
  signature.nodes = {node};
  signature.outputs = {{0, 0}};
  return signature;
}

Candidate OneLaunch(const std::string& kernel) {
  Candidate candidate;
  candidate.source = {Language::kCuda, kCudaSource};
  Launch launch;
  launch.kernel = kernel;
  launch.args = {{LaunchArg::Kind::kInput, 0, {}, 0},
                 {LaunchArg::Kind::kOutput, 0, {}, 0},
                 {LaunchArg::Kind::kInt, 0, IntExpr::Parse("in0.size1").value(), 0},
                 {LaunchArg::Kind::kFloat, 0, {}, 3.0}};
  launch.grid[0] = IntExpr::Parse("in0.size0").value();
  launch.block[0] = 256;
  candidate.plan.launches = {launch};
  return candidate;
}

class GpuCudaTarget : public testing::Test {
 protected:
  void SetUp() override {
    if (!cu::DriverApi::Get().ok()) GTEST_SKIP() << "needs a GPU";
    Result<std::unique_ptr<Target>> target = MakeCudaTarget(0);
    ASSERT_TRUE(target.ok()) << target.status().ToString();
    target_ = *std::move(target);
    CompileResult compiled = target_->Compile({Language::kCuda, kCudaSource}, 60'000);
    ASSERT_TRUE(compiled.ok) << compiled.log;
    binary_ = std::move(compiled.binary);
    in_ = target_->Allocate(kBytes).value();
    out_ = target_->Allocate(kBytes).value();
    values_.resize(kRows * kColumns);
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i % 1009);
    ASSERT_TRUE(target_->CopyIn(in_.data(), values_.data(), kBytes).ok());
  }

  Result<std::unique_ptr<Executable>> Load(const Candidate& candidate) {
    return target_->Load(binary_, candidate, CudaSignature());
  }

  Status Launch(const Executable& executable) {
    void* const inputs[] = {in_.data()};
    void* const outputs[] = {out_.data()};
    return executable.Launch(inputs, outputs, {}, target_->launch_context());
  }

  std::vector<float> Output() {
    std::vector<float> values(kRows * kColumns);
    EXPECT_TRUE(target_->CopyOut(values.data(), out_.data(), kBytes).ok());
    return values;
  }

  std::unique_ptr<Target> target_;
  std::string binary_;
  DeviceBuffer in_;
  DeviceBuffer out_;
  std::vector<float> values_;
};

TEST_F(GpuCudaTarget, DescribesTheDevice) {
  const DeviceArch& arch = target_->arch();
  EXPECT_TRUE(arch.target.starts_with("cuda:sm_")) << arch.target;
  const Json facts = arch.Facts();
  for (const char* name :
       {"multiprocessors", "clock_khz", "l2_bytes", "shared_bytes_per_block_optin", "memory_bytes",
        "memory_bus_bits", "memory_clock_khz"}) {
    EXPECT_GT(facts.at(name).get<int64_t>(), 0) << name;
  }
  EXPECT_FALSE(arch.name.empty());
  EXPECT_EQ(MakeCudaTarget(4096).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(GpuCudaTarget, RunsAKernel) {
  const auto executable = Load(OneLaunch("scale"));
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  ASSERT_TRUE(Launch(**executable).ok());
  const std::vector<float> result = Output();
  for (size_t i = 0; i < result.size(); ++i) ASSERT_EQ(result[i], 3.0f * values_[i]) << i;
  EXPECT_FALSE(target_->poisoned());
}

TEST_F(GpuCudaTarget, RunsPtx) {
  const CompileResult linked = target_->Compile({Language::kPtx, kPtxSource}, 60'000);
  if (!linked.fault.ok()) GTEST_SKIP() << linked.fault.message();
  ASSERT_TRUE(linked.ok) << linked.log;
  EXPECT_GT(linked.resources.at("scale").at("registers").get<int>(), 0);
  Candidate candidate = OneLaunch("scale");
  candidate.source = {Language::kPtx, kPtxSource};
  const auto executable = target_->Load(linked.binary, candidate, CudaSignature());
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  ASSERT_TRUE(Launch(**executable).ok());
  const std::vector<float> result = Output();
  for (size_t i = 0; i < result.size(); ++i) ASSERT_EQ(result[i], 3.0f * values_[i]) << i;
  EXPECT_FALSE(target_->Compile({Language::kCpu, ""}, 1000).ok);
  EXPECT_FALSE(target_->Compile({Language::kPtx, kCudaSource}, 1000).ok);
}

TEST_F(GpuCudaTarget, PassesScratchBetweenLaunches) {
  Candidate candidate = OneLaunch("scale");
  candidate.plan.launches.push_back(OneLaunch("reverse").plan.launches[0]);
  candidate.plan.scratch_bytes = {IntExpr::Parse("in0.size0 * in0.size1 * 4").value()};
  candidate.plan.launches[0].args[1] = {LaunchArg::Kind::kScratch, 0, {}, 0};
  candidate.plan.launches[1].args[0] = {LaunchArg::Kind::kScratch, 0, {}, 0};
  candidate.plan.launches[1].dynamic_shared_bytes = kColumns * 4;
  ASSERT_TRUE(candidate.Validate(CudaSignature()).ok());
  const auto executable = Load(candidate);
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  ASSERT_EQ((*executable)->scratch_bytes().size(), 1u);
  EXPECT_EQ((*executable)->scratch_bytes()[0], kBytes);
  const DeviceBuffer buffer = target_->Allocate(kBytes).value();
  void* const inputs[] = {in_.data()};
  void* const outputs[] = {out_.data()};
  void* const scratch[] = {buffer.data()};
  ASSERT_FALSE((*executable)->Launch(inputs, outputs, {}, target_->launch_context()).ok());
  ASSERT_TRUE((*executable)->Launch(inputs, outputs, scratch, target_->launch_context()).ok());
  const std::vector<float> result = Output();
  for (size_t i = 0; i < result.size(); ++i) {
    const size_t row = i / kColumns * kColumns;
    ASSERT_EQ(result[i], 3.0f * values_[row + kColumns - 1 - (i - row)]) << i;
  }
}

// Blocks wait for each other by a counter that is zero at the start of every call.
TEST_F(GpuCudaTarget, RunsCooperativeLaunchesWithZeroedScratch) {
  Candidate candidate = OneLaunch("count_blocks");
  cudaforge::Launch& launch = candidate.plan.launches[0];
  launch.args[2] = {LaunchArg::Kind::kScratch, 0, {}, 0};
  launch.args[3] = {LaunchArg::Kind::kInt, 0, 64, 0};
  launch.grid[0] = 64;
  launch.block[0] = 32;
  launch.attributes.cooperative = true;
  candidate.plan.scratch_bytes.emplace_back(IntExpr(4), true);
  const auto executable = Load(candidate);
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  const DeviceBuffer buffer = target_->Allocate(4).value();
  void* const inputs[] = {in_.data()};
  void* const outputs[] = {out_.data()};
  void* const scratch[] = {buffer.data()};
  for (int call = 0; call < 3; ++call) {
    ASSERT_TRUE((*executable)->Launch(inputs, outputs, scratch, target_->launch_context()).ok());
    const std::vector<float> result = Output();
    EXPECT_EQ(std::vector<float>(result.begin(), result.begin() + 64), std::vector<float>(64, 64));
  }
  launch.grid[0] = 65535;  // more blocks than run at once
  const auto too_many = Load(candidate);
  ASSERT_TRUE(too_many.ok()) << too_many.status().ToString();
  EXPECT_FALSE((*too_many)->Launch(inputs, outputs, scratch, target_->launch_context()).ok());
}

TEST_F(GpuCudaTarget, RunsDependentLaunches) {
  if (target_->arch().cluster_launch.value_or(0) == 0) return;  // before sm_90
  Candidate candidate = OneLaunch("scale");
  candidate.plan.launches.push_back(OneLaunch("dependent").plan.launches[0]);
  candidate.plan.launches[1].attributes.programmatic_dependent_launch = true;
  const auto executable = Load(candidate);
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  for (int call = 0; call < 20; ++call) ASSERT_TRUE(Launch(**executable).ok());
  EXPECT_EQ(Output()[1234], 3.0f * values_[1234] + 1.0f);
}

TEST_F(GpuCudaTarget, RunsOnTheDefaultStream) {
  CudaTargetOptions options;
  options.own_stream = false;
  const auto other = MakeCudaTarget(0, options);
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  EXPECT_EQ((*other)->launch_context().stream, nullptr);
  const auto executable = (*other)->Load(binary_, OneLaunch("scale"), CudaSignature());
  ASSERT_TRUE(executable.ok());
  void* const inputs[] = {in_.data()};
  void* const outputs[] = {out_.data()};
  const Result<double> ns = (*other)->TimeOnce(
      [&] { return (*executable)->Launch(inputs, outputs, {}, (*other)->launch_context()); });
  ASSERT_TRUE(ns.ok()) << ns.status().ToString();
  EXPECT_GT(*ns, 0);
  EXPECT_EQ(Output()[5], 3.0f * values_[5]);
}

// For a thread without a current device.
TEST_F(GpuCudaTarget, MakingLoadingAndFreeingKeepTheCurrentDevice) {
  const cu::DriverApi& api = **cu::DriverApi::Get();
  std::thread([&] {
    const auto is_without = [&api] {
      cu::Context current = nullptr;
      return api.ContextGetCurrent(&current) == 0 && current == nullptr;
    };
    EXPECT_TRUE(MakeCudaTarget(0, {.search_paths = {}, .own_stream = false}).ok());
    EXPECT_TRUE(is_without());
    {
      const auto executable = Load(OneLaunch("scale"));
      EXPECT_TRUE(executable.ok()) << executable.status().ToString();
      EXPECT_TRUE(is_without());
    }
    EXPECT_TRUE(is_without());
  }).join();
}

TEST_F(GpuCudaTarget, AllowsLargeDynamicSharedMemory) {
  Candidate candidate = OneLaunch("reverse");
  candidate.plan.launches[0].dynamic_shared_bytes = 100 << 10;
  const auto executable = Load(candidate);
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  ASSERT_TRUE(Launch(**executable).ok());
  const std::vector<float> result = Output();
  for (size_t i = 0; i < result.size(); ++i) {
    const size_t row = i / kColumns * kColumns;
    ASSERT_EQ(result[i], values_[row + kColumns - 1 - (i - row)]) << i;
  }
}

TEST_F(GpuCudaTarget, RefusesPlansBeyondTheDevice) {
  Candidate threads = OneLaunch("scale");
  threads.plan.launches[0].block[0] = 1024;
  threads.plan.launches[0].block[1] = 2;
  Candidate shared = OneLaunch("reverse");
  shared.plan.launches[0].dynamic_shared_bytes = 10 << 20;
  Candidate cluster = OneLaunch("scale");
  cluster.plan.launches[0].attributes.cluster[0] = 3;
  Candidate arguments = OneLaunch("scale");
  arguments.plan.launches[0].args.pop_back();
  for (const Candidate& candidate :
       {threads, shared, cluster, arguments, OneLaunch("narrow"), OneLaunch("absent")}) {
    const auto executable = Load(candidate);
    EXPECT_EQ(executable.status().code(), StatusCode::kInvalidArgument)
        << executable.status().ToString();
    EXPECT_NE(executable.status().message().find(candidate.plan.launches[0].kernel),
              std::string::npos);
  }
  EXPECT_EQ(
      target_->Load(binary_.substr(0, binary_.size() / 2), OneLaunch("scale"), CudaSignature())
          .status()
          .code(),
      StatusCode::kCorruption);
  EXPECT_FALSE(target_->poisoned());
}

TEST_F(GpuCudaTarget, RunsClusters) {
  if (target_->arch().cluster_launch == 0) return;
  Candidate candidate = OneLaunch("scale");
  candidate.plan.launches[0].attributes.cluster[0] = 2;
  const auto executable = Load(candidate);
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  ASSERT_TRUE(Launch(**executable).ok());
  EXPECT_EQ(Output()[1234], 3.0f * values_[1234]);
}

TEST_F(GpuCudaTarget, TimesWork) {
  const auto executable = Load(OneLaunch("scale"));
  ASSERT_TRUE(executable.ok());
  for (int i = 0; i < 3; ++i) {
    const Result<double> ns = target_->TimeOnce([&] { return Launch(**executable); });
    ASSERT_TRUE(ns.ok()) << ns.status().ToString();
    EXPECT_GT(*ns, 0);
  }
  // Work that waits for the device while the stream is held must not hang.
  EXPECT_TRUE(target_
                  ->TimeOnce([&] {
                    CF_RETURN_IF_ERROR(Launch(**executable));
                    return target_->Synchronize();
                  })
                  .ok());
  EXPECT_EQ(target_->TimeOnce([] { return Status::Timeout("given up"); }).status().code(),
            StatusCode::kTimeout);
  EXPECT_TRUE(target_->TimeOnce([&] { return Launch(**executable); }).ok())
      << "usable after a failed sample";
}

TEST_F(GpuCudaTarget, ReportsLaunchFacts) {
  Candidate candidate = OneLaunch("reverse");
  candidate.plan.launches[0].dynamic_shared_bytes = 100 << 10;
  candidate.plan.launches.push_back(OneLaunch("scale").plan.launches[0]);
  const auto executable = Load(candidate);
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  const auto facts = (*executable)->LaunchFacts();
  ASSERT_TRUE(facts.ok()) << facts.status().ToString();
  ASSERT_EQ(facts->size(), 2u);
  for (const Json& fact : *facts) {
    EXPECT_EQ(fact["grid"], (Json{kRows, 1, 1})) << fact;
    EXPECT_EQ(fact["block"], (Json{256, 1, 1})) << fact;
    EXPECT_GT(fact["registers"].get<int>(), 0) << fact;
    EXPECT_EQ(fact["local_bytes"], 0) << fact;
    EXPECT_GT(fact["waves"].get<double>(), 0) << fact;
    EXPECT_LE(fact["occupancy"].get<double>(), 1) << fact;
    // Our count of each limit against the driver's overall count.
    int least = INT_MAX;
    for (const Json& blocks : fact["limits"]) least = std::min(least, blocks.get<int>());
    EXPECT_EQ(fact["blocks_per_sm"], least) << fact;
    EXPECT_FALSE(fact["limited_by"].empty()) << fact;
  }
  EXPECT_EQ((*facts)[0]["dynamic_shared_bytes"], 100 << 10);
  EXPECT_EQ((*facts)[0]["limited_by"], Json::array({"shared"}));
  EXPECT_EQ((*facts)[1]["kernel"], "scale");
}

// Counters may be refused (privileges, another profiler); then there is a note.
TEST_F(GpuCudaTarget, ProfilesTierByTier) {
  CudaTargetOptions options;
  options.counters = true;
  const auto profiling = MakeCudaTarget(0, options);
  ASSERT_TRUE(profiling.ok()) << profiling.status().ToString();
  Candidate candidate = OneLaunch("scale");
  candidate.plan.launches.push_back(candidate.plan.launches[0]);  // one range around both
  const auto executable = (*profiling)->Load(binary_, candidate, CudaSignature());
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  void* const inputs[] = {in_.data()};
  void* const outputs[] = {out_.data()};
  const auto enqueue = [&] {
    return (*executable)->Launch(inputs, outputs, {}, (*profiling)->launch_context());
  };
  size_t metrics = 0;
  for (int tier = 0; tier <= kMaxProfileTier; ++tier) {
    const auto profile = (*profiling)->Profile(**executable, enqueue, tier);
    ASSERT_TRUE(profile.ok()) << profile.status().ToString();
    EXPECT_EQ((*profile)["kernels"].size(), 2u);
    const Json& found = (*profile)["metrics"];
    if (tier == 0 || found.empty()) {
      EXPECT_EQ((*profile)["tier"], 0);
      EXPECT_EQ((*profile)["note"].get<std::string>().empty(), tier == 0) << *profile;
      continue;
    }
    std::cout << "[ counters ] " << profile->dump() << std::endl;
    EXPECT_EQ((*profile)["tier"], tier);
    EXPECT_GT(found.size(), metrics) << "tier " << tier;
    metrics = found.size();
    EXPECT_GE((*profile)["passes"], tier < 2 ? 1 : 2);
    // Caches are cold: the input is read from memory once, and a second launch finds it in the L2.
    if (found.contains("dram__bytes_read.sum")) {
      EXPECT_GT(found["dram__bytes_read.sum"].get<double>(), 0.5 * kBytes);
      EXPECT_LT(found["dram__bytes_read.sum"].get<double>(), 16.0 * kBytes);
    }
    EXPECT_GT(found["gpu__time_duration.sum"].get<double>(), 0);
  }
  // A failure of the work is an error, and the profiler stays usable.
  int runs = 0;
  const auto fails_later = [&] { return ++runs < 2 ? enqueue() : Status::Cancelled("given up"); };
  const auto failed = (*profiling)->Profile(**executable, fails_later, 1);
  EXPECT_EQ(failed.ok(), metrics == 0);
  if (metrics > 0) {
    EXPECT_EQ(failed.status().code(), StatusCode::kCancelled);
    const auto again = (*profiling)->Profile(**executable, enqueue, 1);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ((*again)["tier"], 1) << *again;
  }
  EXPECT_FALSE((*profiling)->poisoned());
  EXPECT_TRUE((*profiling)->TimeOnce(enqueue).ok());
  EXPECT_EQ(Output()[7], 3.0f * values_[7]);
}

TEST_F(GpuCudaTarget, CountersAreOffByDefault) {
  const auto executable = Load(OneLaunch("scale"));
  ASSERT_TRUE(executable.ok());
  const auto profile = target_->Profile(
      **executable, [&] { return Launch(**executable); }, kMaxProfileTier);
  ASSERT_TRUE(profile.ok()) << profile.status().ToString();
  EXPECT_EQ((*profile)["tier"], 0);
  EXPECT_FALSE((*profile)["note"].get<std::string>().empty());
  EXPECT_EQ((*profile)["kernels"].size(), 1u);
}

TEST_F(GpuCudaTarget, MeasuresItsFactsOnce) {
  const auto facts = target_->Facts();
  ASSERT_TRUE(facts.ok()) << facts.status().ToString();
  std::cout << "[ facts    ] " << facts->dump() << std::endl;
  EXPECT_EQ((*facts)["note"], "") << *facts;
  EXPECT_EQ((*facts)["arch"], target_->arch().target);
  for (const char* fact : {"sms", "clock_mhz", "l2_bytes", "memory_bytes", "registers_per_sm",
                           "shared_bytes_per_sm", "shared_bytes_per_block_optin"}) {
    EXPECT_GT((*facts)[fact].get<double>(), 0) << fact;
  }
  // Wide enough for any device; a wrong unit or a wrong count is off by more.
  EXPECT_GT((*facts)["bandwidth_gb_s"].get<double>(), 50);
  EXPECT_LT((*facts)["bandwidth_gb_s"].get<double>(), 2e4);
  EXPECT_GT((*facts)["fp32_tflops"].get<double>(), 1);
  EXPECT_LT((*facts)["fp32_tflops"].get<double>(), 1e3);
  if (!target_->arch().target.starts_with("cuda:sm_7")) {
    for (const char* rate : {"bf16_tensor_tflops", "fp16_tensor_tflops"}) {
      EXPECT_GT((*facts)[rate].get<double>(), (*facts)["fp32_tflops"].get<double>()) << rate;
      EXPECT_LT((*facts)[rate].get<double>(), 2e4) << rate;
    }
  }
  EXPECT_EQ(*target_->Facts(), *facts);
}

// A lost context cannot be cleaned up: this runs in a process of its own.
TEST_F(GpuCudaTarget, ReportsALostContext) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto executable = Load(OneLaunch("stray"));
        const Status launched = executable.ok() ? Launch(**executable) : executable.status();
        const Status done = target_->Synchronize();
        const bool lost = done.code() == StatusCode::kMemoryFault && target_->poisoned();
        std::_Exit(launched.ok() && lost ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace cudaforge
