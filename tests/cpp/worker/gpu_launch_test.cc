// CUDA kernels in a real worker on memory that this process owns.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "target/cuda/driver_api.h"
#include "target/cuda/search_paths.h"
#include "tests/cpp/worker/fake_target.h"
#include "worker/worker_client.h"

namespace cudaforge {
namespace {

constexpr int64_t kCount = 100'000;
constexpr int64_t kSize = kCount * 4;

// y[i] = max(x[i], 0), plus a statement in the first thread.
Candidate CudaRelu(const std::string& first_thread) {
  Candidate candidate = CpuCandidate(
      "extern \"C\" __global__ void candidate(const float* x, float* y, long long n) {\n"
      "  for (long long i = threadIdx.x; i < n; i += 256) y[i] = x[i] > 0 ? x[i] : 0;\n"
      "  if (threadIdx.x == 0) {\n" +
          first_thread + "\n  }\n}\n",
      1, "1", kCount);
  candidate.source.language = Language::kCuda;
  candidate.plan.launches[0].block[0] = 256;
  return candidate;
}

class GpuLaunch : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cu::DriverApi::Get().ok()) GTEST_SKIP() << "needs a GPU";
    signature_.device = DeviceType::kCuda;
    auto target = MakeCudaTarget(0);
    ASSERT_TRUE(target.ok()) << target.status().ToString();
    target_ = *std::move(target);
    auto x = target_->Share(kSize);
    auto y = target_->Share(kSize);
    ASSERT_TRUE(x.ok() && y.ok());
    x_ = std::make_unique<SharedMemory>(*std::move(x));
    y_ = std::make_unique<SharedMemory>(*std::move(y));
    std::vector<float> values(kCount);
    for (int64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i) - 500;
    for (const int64_t at : {int64_t{0}, x_->bytes() - kSize}) {
      ASSERT_TRUE(target_->CopyIn(static_cast<char*>(x_->data()) + at, values.data(), kSize).ok());
    }
    const auto x_id = client_.Map(*x_, false, 0);
    const auto y_id = client_.Map(*y_, true, 0);
    ASSERT_TRUE(x_id.ok() && y_id.ok()) << x_id.status().ToString() << y_id.status().ToString();
    x_id_ = *x_id;
    y_id_ = *y_id;
  }

  LaunchRequest At(bool end) const {
    const int64_t at = end ? x_->bytes() - kSize : 0;
    return {{{x_id_, at}}, {{y_id_, at}}, {}};
  }

  Verdict RunKernel(const std::string& first_thread, bool end = false) {
    const Candidate candidate = CudaRelu(first_thread);
    const auto compiled = client_.Compile(candidate);
    EXPECT_TRUE(compiled.ok() && compiled->ok) << (compiled.ok() ? compiled->log : "");
    const auto loaded = client_.Load(compiled->binary, candidate, signature_);
    EXPECT_TRUE(loaded.ok() && loaded->verdict.accepted());
    const auto verdict = client_.Launch(At(end));
    EXPECT_TRUE(verdict.ok()) << verdict.status().ToString();
    return verdict.ok() ? *verdict : Verdict{VerdictKind::kNotJudged, ""};
  }

  void ExpectRelu(bool end) {
    std::vector<float> values(kCount, -1);
    const int64_t at = end ? y_->bytes() - kSize : 0;
    ASSERT_TRUE(target_->CopyOut(values.data(), static_cast<char*>(y_->data()) + at, kSize).ok());
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(values[i], std::max(static_cast<float>(i) - 500, 0.0f)) << i;
    }
  }

  // Checks a hostile kernel's verdict, then that a good one runs with the same ids in another
  // worker.
  void Expect(VerdictKind kind, const std::string& first_thread, bool end = false) {
    const Verdict verdict = RunKernel(first_thread, end);
    EXPECT_EQ(VerdictName(verdict.kind), VerdictName(kind)) << verdict.message;
    EXPECT_TRUE(RunKernel("", end).accepted());
    EXPECT_EQ(client_.started(), 2);
    ExpectRelu(end);
  }

  static WorkerOptions Options() {
    WorkerOptions options;
    options.executable = std::string(CUDAFORGE_BINARY_DIR) + "/cudaforge-worker";
    options.device = DeviceType::kCuda;
    options.run_timeout_ms = 10'000;
    options.cuda_search_paths = CudaRoots({});
    return options;
  }

  OpSignature signature_ = ReluSignature(kCount);
  std::unique_ptr<Target> target_;
  std::unique_ptr<SharedMemory> x_, y_;
  int x_id_ = 0, y_id_ = 0;
  WorkerClient client_{Options()};
};

TEST_F(GpuLaunch, ComputesInPlace) {
  for (const bool end : {false, true}) {
    EXPECT_TRUE(RunKernel("", end).accepted());
    ExpectRelu(end);
  }
  const auto again = client_.Map(*y_, true, 0);
  ASSERT_TRUE(again.ok());
  LaunchRequest other = At(false);
  other.outputs[0].mapping = *again;
  const auto cold = client_.Time({At(false), other}, {.samples = 5}, {});
  const auto warm = client_.Time({At(false), other}, {.samples = 5}, {0});
  ASSERT_TRUE(cold.ok() && warm.ok()) << cold.status().ToString() << warm.status().ToString();
  EXPECT_GT(*cold, 0);
  EXPECT_GT(*warm, 0);
  for (int tier = 0; tier <= kMaxProfileTier; ++tier) {
    const auto profile = client_.Profile(At(false), tier);
    ASSERT_TRUE(profile.ok()) << profile.status().ToString();
    EXPECT_EQ((*profile)["kernels"].size(), 1u) << *profile;
    EXPECT_TRUE((*profile)["tier"] == tier || (*profile)["note"] != "") << *profile;
  }
  const auto facts = client_.Facts();
  ASSERT_TRUE(facts.ok()) << facts.status().ToString();
  EXPECT_GT((*facts)["bandwidth_gb_s"].get<double>(), 0) << *facts;
  EXPECT_TRUE(client_.Unmap(*again).ok());
  EXPECT_EQ(client_.started(), 1);
}

TEST_F(GpuLaunch, AWriteIntoAnInput) {
  Expect(VerdictKind::kMemoryFault, "const_cast<float*>(x)[3] = 7;");
}

TEST_F(GpuLaunch, AReadBeforeAnInput) {
  Expect(VerdictKind::kMemoryFault, "y[0] = ((volatile const float*)x)[-1];");
}

TEST_F(GpuLaunch, AReadAfterAnInput) {
  Expect(VerdictKind::kMemoryFault, "y[0] = ((volatile const float*)x)[n];", true);
}

TEST_F(GpuLaunch, AWriteAfterAnOutput) { Expect(VerdictKind::kMemoryFault, "y[n] = 1;", true); }

TEST_F(GpuLaunch, AnUnmappedAddress) {
  Expect(VerdictKind::kMemoryFault, "*reinterpret_cast<volatile float*>(16) = 1;");
}

// If counters are refused, nothing runs and nothing is lost.
TEST_F(GpuLaunch, FailedProfileReplacesTheWorker) {
  const Candidate stray = CudaRelu("*reinterpret_cast<volatile float*>(16) = 1;");
  const auto compiled = client_.Compile(stray);
  ASSERT_TRUE(compiled.ok() && compiled->ok);
  ASSERT_TRUE(client_.Load(compiled->binary, stray, signature_)->verdict.accepted());
  const auto profile = client_.Profile(At(false), 1);
  EXPECT_TRUE(RunKernel("").accepted());
  EXPECT_EQ(client_.started(), profile.ok() ? 1 : 2);
}

TEST_F(GpuLaunch, AnEndlessKernel) {
  client_.Limit(60'000, 3'000, nullptr);
  Expect(VerdictKind::kTimeout,
         "volatile float* forever = y; while (forever[0] != -1) forever[1] = 2;");
}

}  // namespace
}  // namespace cudaforge
