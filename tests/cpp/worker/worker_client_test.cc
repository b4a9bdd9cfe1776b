#include "worker/worker_client.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <thread>

#include "base/file.h"
#include "tests/cpp/worker/fake_target.h"

namespace cudaforge {
namespace {

constexpr char kPrologue[] =
    "#include <cstdint>\n"
    "extern \"C\" void candidate(void* const* b, const int64_t* n, const double*, int64_t begin,\n"
    "                          int64_t end) {\n"
    "  const float* x = static_cast<const float*>(b[0]);\n"
    "  float* y = static_cast<float*>(b[1]);\n"
    "  for (int64_t i = begin; i < end; ++i) ";

WorkerOptions Options() {
  WorkerOptions options;
  options.executable = std::string(CUDAFORGE_BINARY_DIR) + "/cudaforge-worker";
  options.run_timeout_ms = 5000;
  return options;
}

// A worker and a kernel of this test; for memory see launch_test.cc.
class Client : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 8; ++i) static_cast<float*>(x_.data())[i] = static_cast<float>(i) - 3;
  }
  Candidate Make(const std::string& body) {
    return CpuCandidate(kPrologue + body + "\n}\n", 1, "8", 1);
  }
  // Compiled, loaded and launched on x_ and y_.
  Verdict RunBody(const std::string& body) {
    const Candidate candidate = Make(body);
    const auto compiled = client_.Compile(candidate);
    EXPECT_TRUE(compiled.ok() && compiled->ok) << compiled.status().ToString();
    const auto loaded = client_.Load(compiled->binary, candidate, signature_);
    EXPECT_TRUE(loaded.ok() && loaded->verdict.accepted()) << loaded.status().ToString();
    const auto x = client_.Map(x_, false, 0);
    const auto y = client_.Map(y_, true, 0);
    EXPECT_TRUE(x.ok() && y.ok());
    const auto verdict = client_.Launch({{{*x, 0}}, {{*y, 0}}, {}});
    EXPECT_TRUE(verdict.ok()) << verdict.status().ToString();
    EXPECT_TRUE(client_.Unmap(*x).ok() && client_.Unmap(*y).ok());
    return *verdict;
  }

  OpSignature signature_ = ReluSignature(8);
  SharedMemory x_ = *ShareHostMemory(32), y_ = *ShareHostMemory(32);
  WorkerClient client_{Options()};
};

TEST_F(Client, CompilesAndRuns) {
  const Verdict verdict = RunBody("y[i] = x[i] > 0 ? x[i] : 0;");
  ASSERT_TRUE(verdict.accepted()) << verdict.message;
  const float* const values = static_cast<const float*>(y_.data());
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(values[7], 4);
  EXPECT_EQ(client_.started(), 1);
}

TEST_F(Client, CompileErrorCarriesTheLog) {
  const auto compiled = client_.Compile(Make("y[i] = undeclared_name;"));
  ASSERT_TRUE(compiled.ok());
  EXPECT_FALSE(compiled->ok);
  EXPECT_NE(compiled->log.find("undeclared_name"), std::string::npos);
}

// The environments of this process's running children.
std::vector<std::string> EnvironmentsOfChildren() {
  std::vector<std::string> found;
  const std::string parent = "\nPPid:\t" + std::to_string(getpid()) + "\n";
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    const std::string place = process.path().string();
    const auto status = ReadFile(place + "/status", size_t{1} << 20);
    if (!status.ok() || status->find(parent) == std::string::npos) continue;
    const auto environment = ReadFile(place + "/environ", size_t{1} << 20);
    if (environment.ok() && !environment->empty()) found.push_back(*environment);
  }
  return found;
}

TEST_F(Client, SecretsAreNotInTheWorker) {
  ASSERT_EQ(setenv("CUDAFORGE_TEST_API_KEY", "secret", 1), 0);
  WorkerClient fresh(Options());
  EXPECT_TRUE(fresh.Compile(Make("y[i] = x[i];")).ok());
  unsetenv("CUDAFORGE_TEST_API_KEY");
  const std::vector<std::string> environments = EnvironmentsOfChildren();
  ASSERT_FALSE(environments.empty()) << "the worker has one";
  for (const std::string& environment : environments) {
    EXPECT_EQ(environment.find("CUDAFORGE_TEST_"), std::string::npos);
    EXPECT_NE(environment.find("PATH="), std::string::npos) << "so it was read";
  }
}

TEST_F(Client, DeadWorkerIsReplaced) {
  // The worker dies with the thread that started it; the client survives.
  std::thread([&] { EXPECT_TRUE(RunBody("y[i] = x[i];").accepted()); }).join();
  for (int i = 0; i < 100 && client_.started() < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(RunBody("y[i] = x[i];").accepted());
  }
}

TEST_F(Client, WorkerLeavesNoFiles) {
  const TempDir folder = TempDir::Create("cudaforge-client-test-").value();
  const char* const set = getenv("TMPDIR");
  const std::string before = set != nullptr ? set : "/tmp";
  ASSERT_EQ(setenv("TMPDIR", folder.path().c_str(), 1), 0);
  const auto leave_a_file = [&] {  // where the worker and its compilers write theirs
    for (const auto& scratch : std::filesystem::directory_iterator(folder.path())) {
      EXPECT_TRUE(WriteFileAtomic(scratch.path().string() + "/left", "behind").ok());
    }
    return !std::filesystem::is_empty(folder.path());
  };
  {
    WorkerClient other(Options());
    EXPECT_TRUE(other.Compile(Make("y[i] = x[i];"))->ok);
    EXPECT_TRUE(leave_a_file());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  ASSERT_EQ(setenv("TMPDIR", before.c_str(), 1), 0);
}

TEST_F(Client, IllegalPlanIsRefusedBeforeItIsSent) {
  Candidate candidate = Make("y[i] = x[i];");
  candidate.plan.launches[0].args[0].index = 9;
  const auto loaded = client_.Load("BINARY", candidate, signature_);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->verdict.kind, VerdictKind::kRefused);
  EXPECT_EQ(client_.started(), 0);
}

// No verdict on the candidate, which may compile later.
TEST(ClientStart, MachineWithoutACompiler) {
  WorkerOptions options = Options();
  options.cxx = "/nowhere/g++";
  Candidate candidate;
  candidate.source = {Language::kCpu, "extern \"C\" void f() {}\n"};
  const auto compiled = WorkerClient(options).Compile(candidate);
  EXPECT_EQ(compiled.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(compiled.status().message().find("/nowhere/g++"), std::string::npos);
}

TEST(ClientStart, NoExecutableOrAnotherProgram) {
  WorkerOptions options = Options();
  options.executable = "/nowhere/cudaforge-worker";
  EXPECT_EQ(WorkerClient(options).Compile({}).status().code(), StatusCode::kUnavailable);
  options.executable = "/bin/true";
  EXPECT_EQ(WorkerClient(options).Compile({}).status().code(), StatusCode::kUnavailable);
}

TEST_F(Client, FactsAreMeasuredOnce) {
  const auto facts = client_.Facts();
  ASSERT_TRUE(facts.ok()) << facts.status().ToString();
  EXPECT_GT((*facts)["bandwidth_gb_s"].get<double>(), 0) << *facts;
  EXPECT_EQ(*client_.Facts(), *facts);
  EXPECT_EQ(client_.started(), 1);
}

TEST(CandidateRunnerOfATest, OnlyCompiles) {
  class Runner : public CandidateRunner {
    Result<CompileResult> Compile(const Candidate&) override { return CompileResult(); }
  } runner;
  EXPECT_EQ(runner.Load("", {}, {}).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(runner.Launch({}).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(runner.Profile({}, 1).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(runner.Facts().status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace cudaforge
