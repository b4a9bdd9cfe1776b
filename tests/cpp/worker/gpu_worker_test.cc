// Hostile CUDA kernels in a real worker: each gets its verdict, and the next candidate its answer.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "target/cuda/driver_api.h"
#include "target/cuda/search_paths.h"
#include "tests/cpp/worker/fake_target.h"
#include "worker/worker_client.h"

namespace cudaforge {
namespace {

constexpr int kElements = 1000;

// y[i] = max(x[i], 0) in one block of 256, with something else in thread 0.
Candidate Kernel(const std::string& thread_zero) {
  Candidate candidate = CpuCandidate(
      "extern \"C\" __global__ void candidate(const float* x, float* y, long long n) {\n"
      "  for (long long i = threadIdx.x; i < n; i += 256) y[i] = x[i] > 0 ? x[i] : 0;\n"
      "  if (threadIdx.x == 0) {\n" +
          thread_zero + "\n  }\n}\n",
      1, "1", kElements);
  candidate.source.language = Language::kCuda;
  candidate.plan.launches[0].block[0] = 256;
  return candidate;
}

class GpuWorker : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cu::DriverApi::Get().ok()) GTEST_SKIP() << "needs a GPU";
    signature_.device = DeviceType::kCuda;
    std::string bytes(kElements * sizeof(float), '\0');
    std::string wanted = bytes;
    for (int i = 0; i < kElements; ++i) {
      const float x = static_cast<float>(i) - 500, y = x > 0 ? x : 0;
      std::memcpy(bytes.data() + i * sizeof(float), &x, sizeof(float));
      std::memcpy(wanted.data() + i * sizeof(float), &y, sizeof(float));
    }
    inputs_.name = "test";
    inputs_.bytes = {bytes};
    wanted_ = wanted;
  }

  RunOutput Run(const Candidate& candidate) {
    const auto compiled = client_.Compile(candidate);
    EXPECT_TRUE(compiled.ok()) << compiled.status().ToString();
    if (!compiled.ok() || !compiled->ok) {
      ADD_FAILURE() << (compiled.ok() ? compiled->log : "");
      return {};
    }
    auto run = client_.Run(compiled->binary, candidate, signature_, inputs_, {});
    EXPECT_TRUE(run.ok()) << run.status().ToString();
    return run.ok() ? *std::move(run) : RunOutput{};
  }

  // A hostile kernel's verdict; then a right one is answered, by worker number `workers`.
  void Expect(VerdictKind kind, const std::string& thread_zero, int workers) {
    const Verdict verdict = Run(Kernel(thread_zero)).verdict;
    EXPECT_EQ(VerdictName(verdict.kind), VerdictName(kind)) << verdict.message;
    const RunOutput next = Run(Kernel(""));
    EXPECT_TRUE(next.verdict.accepted()) << next.verdict.message;
    ASSERT_EQ(next.outputs.size(), 1u);
    EXPECT_EQ(next.outputs[0], wanted_);
    EXPECT_EQ(client_.started(), workers);
  }

  static WorkerOptions Options() {
    WorkerOptions options;
    options.executable = std::string(CUDAFORGE_BINARY_DIR) + "/cudaforge-worker";
    options.device = DeviceType::kCuda;
    options.run_timeout_ms = 10'000;
    options.cuda_search_paths = CudaRoots({});
    return options;
  }

  OpSignature signature_ = ReluSignature(kElements);
  InputSet inputs_;
  std::string wanted_;
  WorkerClient client_{Options()};
};

TEST_F(GpuWorker, RunsARightKernel) {
  const RunOutput run = Run(Kernel(""));
  EXPECT_TRUE(run.verdict.accepted()) << run.verdict.message;
  ASSERT_EQ(run.outputs.size(), 1u);
  EXPECT_EQ(run.outputs[0], wanted_);
}

TEST_F(GpuWorker, AWriteBehindTheOutput) { Expect(VerdictKind::kMemoryFault, "y[n] = 1;", 1); }

TEST_F(GpuWorker, AWriteBeforeTheOutput) { Expect(VerdictKind::kMemoryFault, "y[-1] = 1;", 1); }

TEST_F(GpuWorker, AnIllegalAddress) {
  Expect(VerdictKind::kMemoryFault, "*reinterpret_cast<volatile float*>(16) = 1;", 2);
}

TEST_F(GpuWorker, AChangedInput) {
  Expect(VerdictKind::kModifiedInput, "const_cast<float*>(x)[n - 1] = 7;", 1);
}

TEST_F(GpuWorker, AKernelThatNeverEnds) {
  Expect(VerdictKind::kTimeout,
         "volatile float* forever = y; while (forever[0] != -1) forever[1] = 2;", 2);
}

TEST_F(GpuWorker, ProfilesAndKnowsItsDevice) {
  const Candidate candidate = Kernel("");
  const auto compiled = client_.Compile(candidate);
  ASSERT_TRUE(compiled.ok() && compiled->ok);
  for (int tier = 0; tier <= kMaxProfileTier; ++tier) {
    const auto profile = client_.Profile(compiled->binary, candidate, signature_, inputs_, tier);
    ASSERT_TRUE(profile.ok()) << profile.status().ToString();
    EXPECT_EQ((*profile)["kernels"].size(), 1u) << *profile;
    EXPECT_TRUE((*profile)["tier"] == tier || (*profile)["note"] != "") << *profile;
  }
  const auto facts = client_.Facts();
  ASSERT_TRUE(facts.ok()) << facts.status().ToString();
  EXPECT_GT((*facts)["bandwidth_gb_s"].get<double>(), 0) << *facts;
  const auto time = client_.Time(compiled->binary, candidate, signature_, inputs_, {.samples = 3});
  EXPECT_TRUE(time.ok()) << time.status().ToString();
  EXPECT_TRUE(Run(candidate).verdict.accepted());
  EXPECT_EQ(client_.started(), 1);
}

// Where the counters are refused, nothing is run and nothing is lost.
TEST_F(GpuWorker, AProfileThatLosesTheDeviceCostsOneWorker) {
  const Candidate stray = Kernel("*reinterpret_cast<volatile float*>(16) = 1;");
  const auto compiled = client_.Compile(stray);
  ASSERT_TRUE(compiled.ok() && compiled->ok);
  const auto profile = client_.Profile(compiled->binary, stray, signature_, inputs_, 1);
  if (profile.ok()) {
    EXPECT_NE((*profile)["note"], "") << *profile;
  }
  EXPECT_TRUE(Run(Kernel("")).verdict.accepted());
  EXPECT_EQ(client_.started(), profile.ok() ? 1 : 2);
}

}  // namespace
}  // namespace cudaforge
