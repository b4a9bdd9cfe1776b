// WorkerRegionVerifier with the real worker and compiler, on the CPU.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/cpp/forge/real_worker.h"
#include "tests/cpp/target/prepared_kernel.h"
#include "tests/cpp/worker/fake_target.h"

namespace cudaforge {
namespace {

constexpr int64_t kItems = 1000;

class RegionVerifierOnCpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!MakeCpuTarget().ok()) GTEST_SKIP() << "needs a host compiler";
  }

  // A kernel that runs `body` for items [begin, end) with float* x, y, and s if it has `scratch`
  // bytes.
  Verdict Load(const std::string& body, int64_t scratch = 0) {
    Candidate candidate = CpuCandidate(
        "#include <cstdint>\n"
        "extern \"C\" void candidate(void* const* b, const int64_t*, const double*, int64_t "
        "begin,\n"
        "                          int64_t end) {\n"
        "  const float* x = static_cast<const float*>(b[0]);\n"
        "  float* y = static_cast<float*>(b[1]);\n"
        "  [[maybe_unused]] float* s = static_cast<float*>(b[" +
            std::string(scratch > 0 ? "2" : "1") + "]);\n" + body + "\n}\n",
        1, std::to_string(kItems), 1);
    if (scratch > 0) {
      candidate.plan.scratch_bytes = {ScratchBuffer(scratch, false)};
      LaunchArg arg;
      arg.kind = LaunchArg::Kind::kScratch;
      candidate.plan.launches[0].args.push_back(arg);
    }
    const auto compiled = real_.worker.Compile(candidate);
    EXPECT_TRUE(compiled.ok() && compiled->ok) << (compiled.ok() ? compiled->log : "");
    if (!compiled.ok()) return {VerdictKind::kNotJudged, ""};
    return real_.verifier->Load(compiled->binary, candidate).value();
  }
  Verdict RunAll() {
    Verdict verdict;
    for (size_t set = 0; set < sets_.set_count() && verdict.accepted(); ++set) {
      verdict = real_.verifier->Run(set).value();
    }
    return verdict;
  }

  const OpSignature region_ = ReluSignature(kItems);
  HostSets sets_{std::vector<std::vector<float>>(6, std::vector<float>(kItems, 3)),
                 [](size_t, const float* y) {
                   return std::all_of(y, y + kItems, [](float v) { return v == 3; });
                 }};
  RealWorker real_{region_, sets_};
};

constexpr char kCopy[] = "for (int64_t i = begin; i < end; ++i) y[i] = x[i];\n";

TEST_F(RegionVerifierOnCpu, TestsOtherMachinesSplits) {
  ASSERT_TRUE(Load(kCopy).accepted());
  EXPECT_TRUE(RunAll().accepted());
  for (const char* part :
       {"begin == 334 && end == 668", "begin == 750 && end == 1000", "begin == 125 && end == 250",
        "begin == 63 && end == 126", "begin == 16 && end == 32"}) {
    ASSERT_TRUE(Load(std::string(kCopy) + "if (" + part + ") y[begin] = 5;").accepted());
    EXPECT_EQ(RunAll().kind, VerdictKind::kWrongValues) << part;
  }
}

TEST_F(RegionVerifierOnCpu, TestsBothValuesOfAddressBits) {
  for (const char* buffer : {"x", "y"}) {
    const std::string bit = std::string("(reinterpret_cast<uintptr_t>(") + buffer + ") >> 6) % 2";
    for (const char* value : {"0", "1"}) {
      ASSERT_TRUE(
          Load(std::string(kCopy) + "if (" + bit + " == " + value + ") y[begin] = 5;").accepted());
      EXPECT_EQ(RunAll().kind, VerdictKind::kWrongValues) << buffer << " " << value;
    }
  }
}

TEST_F(RegionVerifierOnCpu, RaceIsRefused) {
  ASSERT_TRUE(
      Load("for (int64_t i = begin; i < end; ++i) { s[0] = x[i] + i; y[i] = s[0] - i; }", 64)
          .accepted());
  const Verdict verdict = RunAll();
  EXPECT_FALSE(verdict.accepted());
}

TEST_F(RegionVerifierOnCpu, InvalidTimingIsAVerdict) {
  ASSERT_TRUE(Load("if (y[begin] == x[begin] && y[end - 1] == x[end - 1]) return;\n"
                   "volatile float sum = 0;\n"
                   "for (int i = 0; i < 200000; ++i) sum = sum + x[i % 1000];\n" +
                   std::string(kCopy))
                  .accepted());
  const auto timed = real_.verifier->Time({});
  ASSERT_TRUE(timed.ok()) << timed.status().ToString();
  EXPECT_FALSE(timed->verdict.accepted());
  ASSERT_TRUE(Load(kCopy).accepted());
  EXPECT_TRUE(real_.verifier->Time({})->verdict.accepted());
}

class PreparedOnCpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!MakeCpuTarget().ok()) GTEST_SKIP() << "needs a host compiler";
  }
  Verdict LoadPrepared(const Candidate& candidate) {
    const auto compiled = real_.worker.Compile(candidate);
    EXPECT_TRUE(compiled.ok() && compiled->ok) << (compiled.ok() ? compiled->log : "");
    if (!compiled.ok()) return {VerdictKind::kNotJudged, ""};
    return real_.verifier->Load(compiled->binary, candidate).value();
  }
  Verdict RunAll() {
    Verdict verdict;
    for (size_t set = 0; set < sets_.set_count() && verdict.accepted(); ++set) {
      verdict = real_.verifier->Run(set).value();
    }
    return verdict;
  }

  const OpSignature region_ = PreparedMulSignature(kItems);
  HostSets sets_{std::vector<std::vector<float>>(6, std::vector<float>(kItems, 3)),
                 [](size_t, const float* y) {
                   return std::all_of(y, y + kItems, [](float v) { return v == 9; });
                 }};
  RealWorker real_{region_, sets_};
};

TEST_F(PreparedOnCpu, PreparesBeforeEachRun) {
  ASSERT_TRUE(LoadPrepared(PreparedMul(1)).accepted());
  const Verdict verdict = RunAll();
  EXPECT_TRUE(verdict.accepted()) << verdict.message;
  const auto timed = real_.verifier->Time({});
  ASSERT_TRUE(timed.ok()) << timed.status().ToString();
  EXPECT_TRUE(timed->verdict.accepted()) << timed->verdict.message;
  EXPECT_GT(timed->prepare_ns, 0);
  EXPECT_TRUE(real_.verifier->Profile(1).ok());
  ASSERT_TRUE(LoadPrepared(PreparedMul(2)).accepted());
  EXPECT_EQ(RunAll().kind, VerdictKind::kWrongValues);
}

TEST_F(PreparedOnCpu, LaunchesMayNotChangePreparedBuffers) {
  ASSERT_TRUE(LoadPrepared(PreparedMul(1, "p[end - 1] += 0;")).accepted());
  EXPECT_EQ(RunAll().kind, VerdictKind::kMemoryFault);
}

TEST_F(PreparedOnCpu, ScratchBuffersKeepNothingFromPreparing) {
  Candidate candidate = PreparedMul(1);
  candidate.plan.launches[0].args[1].kind = LaunchArg::Kind::kScratch;
  ASSERT_TRUE(LoadPrepared(candidate).accepted());
  EXPECT_EQ(RunAll().kind, VerdictKind::kWrongValues);
}

// A large scratch buffer of one candidate does not slow the next ones down.
TEST_F(RegionVerifierOnCpu, FreesALargeScratchBuffer) {
  const auto shared = [] {
    std::ifstream facts("/proc/meminfo");
    for (std::string line; std::getline(facts, line);) {
      if (line.starts_with("Shmem:")) return std::stoll(line.substr(6));
    }
    return 0ll;
  };
  const auto before = shared();
  ASSERT_TRUE(Load(kCopy, int64_t{256} << 20).accepted());
  EXPECT_GT(shared() - before, 200 << 10);
  ASSERT_TRUE(Load(kCopy, 4096).accepted());
  EXPECT_LT(shared() - before, 100 << 10);
  EXPECT_TRUE(RunAll().accepted());
}

}  // namespace
}  // namespace cudaforge
