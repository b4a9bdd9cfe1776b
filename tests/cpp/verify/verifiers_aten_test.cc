#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "target/target.h"
#include "tests/cpp/verify/region_aten.h"
#include "verify/verifiers.h"

namespace cudaforge {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

OpSignature Relu() {
  const TensorSpec spec = F32({8, 24});
  return NormalizeAten(Region({spec}, "aten::relu", Json::array({In(0)}), {spec})).value();
}

// `body` computes out[i] from in[i].
Candidate Loop(const std::string& body) {
  Candidate candidate;
  candidate.source.language = Language::kCpu;
  candidate.source.code =
      "#include <cstdint>\nextern \"C\" void k(void* const* buffers, const int64_t*, const "
      "double*, "
      "int64_t begin, int64_t end) {\n  const float* in = static_cast<float*>(buffers[0]);\n  "
      "float* out = static_cast<float*>(buffers[1]);\n  for (int64_t i = begin; i < end; ++i) {" +
      body + "}\n}\n";
  candidate.author = "test";
  Launch launch;
  launch.kernel = "k";
  launch.args = {{LaunchArg::Kind::kInput, 0}, {LaunchArg::Kind::kOutput, 0}};
  launch.range = 8 * 24;
  launch.grain = 64;
  candidate.plan.launches = {launch};
  return candidate;
}

Candidate Right() { return Loop("out[i] = in[i] <= 0 ? 0 : in[i];"); }

VerifierOptions Options() {
  VerifierOptions options;
  options.executable = std::string(CUDAFORGE_BINARY_DIR) + "/cudaforge-verifier";
  options.worker = std::string(CUDAFORGE_BINARY_DIR) + "/cudaforge-worker";
  return options;
}

// Children of this process that are verifiers.
std::vector<pid_t> Processes() {
  std::vector<pid_t> found;
  std::ifstream children("/proc/self/task/" + std::to_string(getpid()) + "/children");
  for (pid_t child = 0; children >> child;) {
    std::string name;
    std::getline(std::ifstream("/proc/" + std::to_string(child) + "/comm"), name);
    if (name == "cudaforge-verif") found.push_back(child);  // 15 characters are kept
  }
  return found;
}

TEST(Verifiers, ProveKernelsOfConsecutiveRegions) {
  Verifiers verifiers(Options());
  for (int i = 0; i < 2; ++i) {
    const auto opened = verifiers.Open(Relu(), 0, kNever, nullptr);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    Evaluator& evaluator = **opened;
    const auto right = ProveCandidate(evaluator, Right());
    ASSERT_TRUE(right.ok()) << right.status().ToString();
    EXPECT_TRUE(right->findings.verdict.accepted()) << right->findings.verdict.ToJson().dump();
    ASSERT_TRUE(right->kernel.has_value());
    EXPECT_FALSE(right->kernel->binary.empty());
    EXPECT_GT(right->kernel->ns, 0);
    EXPECT_FALSE(right->kernel->verification["cases"].empty());
    EXPECT_EQ(right->kernel->candidate.ToJson(), Right().ToJson());
    EXPECT_GT(evaluator.proof_seconds(), 0);
    EXPECT_GT(evaluator.facts()["cores"], 0);
    const auto wrong = ProveCandidate(evaluator, Loop("out[i] = in[i];"));
    EXPECT_EQ(wrong->findings.verdict.kind, VerdictKind::kWrongValues);
    EXPECT_FALSE(wrong->kernel.has_value());
    EXPECT_EQ(Processes().size(), 1u) << "the one process is used again";
  }
}

TEST(Verifiers, ProveKernelsCompiledElsewhere) {
  VerifierOptions options = Options();
  options.compilers = [](DeviceType) { return 2; };
  Verifiers verifiers(std::move(options));
  const std::string arch = MakeCpuTarget().value()->arch().target;
  verifiers.CompileAhead(Right(), DeviceType::kCpu, arch);
  const auto opened = verifiers.Open(Relu(), 0, kNever, nullptr);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  Evaluator& evaluator = **opened;
  EXPECT_EQ(evaluator.slots(), 3);
  evaluator.Begin({});
  Candidate odd = Right();
  odd.plan.launches[0].args[1].index = 7;
  const std::vector<Candidate> candidates = {Right(), Loop("out[i] = in[i];"), Loop("no C++"), odd};
  for (int i = 0; i < 4; ++i) {
    evaluator.Submit(
        {.id = i, .candidate = candidates[static_cast<size_t>(i)], .depth = Depth::kScreen});
  }
  const VerdictKind expected[] = {VerdictKind::kAccepted, VerdictKind::kWrongValues,
                                  VerdictKind::kCompileError, VerdictKind::kRefused};
  for (int i = 0; i < 4; ++i) {
    const Evaluated done = evaluator.Wait();
    ASSERT_TRUE(done.evaluation.ok()) << done.evaluation.status().ToString();
    EXPECT_EQ(done.id, i);
    EXPECT_EQ(done.evaluation->findings.verdict.kind, expected[i])
        << done.evaluation->findings.verdict.ToJson().dump();
  }
  evaluator.Submit({.id = 0, .candidate = Right()});
  const Evaluated proven = evaluator.Wait();
  ASSERT_TRUE(proven.evaluation.ok() && proven.evaluation->kernel.has_value());
  EXPECT_FALSE(proven.evaluation->kernel->binary.empty());
  EXPECT_GT(evaluator.spent().compile, 0);
  evaluator.Submit({.id = 5, .candidate = Right()});  // still running when it ends
}

TEST(Verifiers, LeaveNoFolders) {
  const TempDir folder = TempDir::Create("cudaforge-verifiers").value();
  const std::string before = std::getenv("TMPDIR") != nullptr ? std::getenv("TMPDIR") : "";
  setenv("TMPDIR", folder.path().c_str(), 1);
  const auto are_there = [&] {  // except timing locks
    const std::filesystem::directory_iterator entries(folder.path());
    return std::any_of(begin(entries), end(entries), [](const auto& entry) {
      return entry.path().filename().string().starts_with("cudaforge-worker-");
    });
  };
  {
    Verifiers verifiers(Options());
    const auto opened = verifiers.Open(Relu(), 0, kNever, nullptr);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    EXPECT_TRUE(ProveCandidate(**opened, Right())->kernel.has_value());
    EXPECT_TRUE(are_there());
  }
  before.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before.c_str(), 1);
  EXPECT_FALSE(are_there());
}

TEST(Verifiers, ReportUnjudgeableRegions) {
  Verifiers verifiers(Options());
  OpSignature empty = Relu();
  empty.inputs[0].sizes = empty.nodes[0].outputs[0].sizes = {0, 24};
  EXPECT_EQ(verifiers.Open(empty, 0, kNever, nullptr).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(verifiers.Open(Relu(), 0, 1e-9, nullptr).status().code(), StatusCode::kTimeout);
  EXPECT_TRUE(verifiers.Open(Relu(), 0, kNever, nullptr).ok());
  VerifierOptions nowhere = Options();
  nowhere.executable = "/nowhere/cudaforge-verifier";
  EXPECT_EQ(Verifiers(nowhere).Open(Relu(), 0, kNever, nullptr).status().code(),
            StatusCode::kUnavailable);
  nowhere.executable = "/bin/false";
  EXPECT_EQ(Verifiers(nowhere).Open(Relu(), 0, kNever, nullptr).status().code(),
            StatusCode::kUnavailable);
}

TEST(Verifiers, ConcurrentRegionsHaveOwnProcesses) {
  Verifiers verifiers(Options());
  verifiers.Prepare(DeviceType::kCpu, 0);  // one of the two
  const auto first = verifiers.Open(Relu(), 0, kNever, nullptr);
  const auto second = verifiers.Open(Relu(), 0, kNever, nullptr);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(Processes().size(), 2u);
  for (const auto& opened : {&first, &second}) {
    EXPECT_TRUE(ProveCandidate(***opened, Right())->kernel.has_value());
  }
}

// The bytes of memory that a process shares with its worker.
int64_t SharedBytes(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  int64_t kib = -1;
  for (std::string word; status >> word;) {
    if (word == "RssShmem:" && status >> kib) return kib * 1024;
  }
  return -1;
}

TEST(Verifiers, ClosedRegionHoldsNoMemory) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const TensorSpec spec = F32({16 * kMiB / 4});
  const OpSignature large =
      NormalizeAten(Region({spec}, "aten::relu", Json::array({In(0)}), {spec})).value();
  Verifiers verifiers(Options());
  EXPECT_FALSE(verifiers.Waits(DeviceType::kCpu, 0));
  {
    const auto opened = verifiers.Open(large, 0, kNever, nullptr);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    ASSERT_EQ(Processes().size(), 1u);
    EXPECT_GT(SharedBytes(Processes()[0]), 16 * kMiB);
    EXPECT_FALSE(verifiers.Waits(DeviceType::kCpu, 0));
  }
  ASSERT_EQ(Processes().size(), 1u);
  EXPECT_LT(SharedBytes(Processes()[0]), kMiB);
  EXPECT_TRUE(verifiers.Waits(DeviceType::kCpu, 0));
  verifiers.EndWaiting();
  EXPECT_FALSE(verifiers.Waits(DeviceType::kCpu, 0));
  EXPECT_TRUE(Processes().empty());
}

TEST(Verifiers, DeadProcessIsReplaced) {
  Verifiers verifiers(Options());
  {
    const auto opened = verifiers.Open(Relu(), 0, kNever, nullptr);
    ASSERT_TRUE(opened.ok());
    ASSERT_EQ(Processes().size(), 1u);
    kill(Processes()[0], SIGKILL);
    const auto lost = ProveCandidate(**opened, Right());
    EXPECT_EQ(lost.status().code(), StatusCode::kUnavailable) << lost.status().ToString();
    EXPECT_NE(lost.status().message().find("verifier ended"), std::string::npos);
  }
  const auto opened = verifiers.Open(Relu(), 0, kNever, nullptr);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_TRUE(ProveCandidate(**opened, Right())->kernel.has_value());
}

TEST(Verifiers, CancelledCandidateLeavesNoProcess) {
  Verifiers verifiers(Options());
  const auto opened = verifiers.Open(Relu(), 0, kNever, nullptr);
  ASSERT_TRUE(opened.ok());
  Cancel cancel;
  EvaluatorSettings settings;
  settings.cancel = &cancel;
  const double began = SteadySeconds();
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    cancel.Set();
  });
  const auto endless =
      ProveCandidate(**opened, Loop("volatile bool go = true; while (go) {}"), settings);
  later.join();
  EXPECT_EQ(endless.status().code(), StatusCode::kCancelled);
  EXPECT_LT(SteadySeconds() - began, 15);
  EXPECT_TRUE(Processes().empty());
}

}  // namespace
}  // namespace cudaforge
