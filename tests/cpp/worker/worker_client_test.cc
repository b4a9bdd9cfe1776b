#include "worker/worker_client.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <csignal>
#include <cstring>
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

InputSet Inputs(int64_t n) {
  InputSet set;
  set.name = "test";
  std::string bytes(static_cast<size_t>(n) * 4, '\0');
  for (int64_t i = 0; i < n; ++i) {
    const float value = static_cast<float>(i) - 3;
    std::memcpy(bytes.data() + i * 4, &value, 4);
  }
  set.bytes = {bytes};
  set.offsets = {4};
  return set;
}

class Client : public ::testing::Test {
 protected:
  Candidate Make(const std::string& body, const std::string& before = "") {
    return CpuCandidate(before + kPrologue + body + "\n}\n", 1, "8", 1);
  }
  Verdict RunBody(const std::string& body, const std::string& before = "") {
    const Candidate candidate = Make(body, before);
    const auto compiled = client_.Compile(candidate);
    EXPECT_TRUE(compiled.ok()) << compiled.status().ToString();
    EXPECT_TRUE(compiled->ok) << compiled->log;
    auto run = client_.Run(compiled->binary, candidate, signature_, inputs_, {});
    EXPECT_TRUE(run.ok()) << run.status().ToString();
    outputs_ = run->outputs;
    return run->verdict;
  }

  OpSignature signature_ = ReluSignature(8);
  InputSet inputs_ = Inputs(8);
  std::vector<std::string> outputs_;
  WorkerClient client_{Options()};
};

TEST_F(Client, ReadingOutsideIsFoundAtAFence) {
  using Fence = RunPlan::Fence;
  for (const auto& [body, fence] :
       {std::pair("{ y[i] = x[i]; if (x[i + 1] == 1e-30f) y[i] = 0; }", Fence::kAfter),
        std::pair("{ y[i] = x[i]; if (y[i - 1] == 1e-30f) y[i] = 0; }", Fence::kBefore)}) {
    const Candidate candidate = Make(body);
    const auto compiled = client_.Compile(candidate);
    ASSERT_TRUE(compiled.ok() && compiled->ok);
    for (const Fence placed : {Fence::kNone, Fence::kBefore, Fence::kAfter}) {
      const auto run =
          client_.Run(compiled->binary, candidate, signature_, inputs_, {.fence = placed});
      ASSERT_TRUE(run.ok()) << run.status().ToString();
      EXPECT_EQ(run->verdict.kind,
                placed == fence ? VerdictKind::kMemoryFault : VerdictKind::kAccepted)
          << body << run->verdict.message;
    }
  }
}

// Guards are as long as a row, up to a limit: rows on both sides of it.
TEST_F(Client, RowsOfAnyLengthRunBesideFences) {
  using Fence = RunPlan::Fence;
  for (const int64_t row : {int64_t{261120}, int64_t{261121}, int64_t{300007}}) {
    signature_ = ReluSignature(row);
    Candidate candidate =
        CpuCandidate(kPrologue + std::string("y[i] = x[i];\n}\n"), 1, std::to_string(row), 1);
    const auto compiled = client_.Compile(candidate);
    ASSERT_TRUE(compiled.ok() && compiled->ok);
    for (const Fence placed : {Fence::kNone, Fence::kBefore, Fence::kAfter}) {
      const auto run =
          client_.Run(compiled->binary, candidate, signature_, Inputs(row), {.fence = placed});
      ASSERT_TRUE(run.ok()) << run.status().ToString();
      EXPECT_TRUE(run->verdict.accepted()) << row << ": " << run->verdict.message;
      EXPECT_EQ(run->outputs, Inputs(row).bytes);
    }
  }
}

TEST_F(Client, CompileRunTime) {
  const Verdict verdict = RunBody("y[i] = x[i] > 0 ? x[i] : 0;");
  ASSERT_TRUE(verdict.accepted()) << verdict.message;
  float values[8];
  ASSERT_EQ(outputs_.at(0).size(), sizeof(values));
  std::memcpy(values, outputs_[0].data(), sizeof(values));
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(values[7], 4);
  const Candidate candidate = Make("y[i] = x[i];");
  const auto time = client_.Time(client_.Compile(candidate)->binary, candidate, signature_, inputs_,
                                 {.samples = 3});
  ASSERT_TRUE(time.ok()) << time.status().ToString();
  EXPECT_GT(*time, 0);
  EXPECT_EQ(client_.started(), 1);
}

TEST_F(Client, SetsWithAnIdAreToldApart) {
  const auto first = [this](const InputSet& set) {
    inputs_ = set;
    EXPECT_TRUE(RunBody("y[i] = x[i];").accepted());
    float value = 0;
    std::memcpy(&value, outputs_.at(0).data(), sizeof(value));
    return value;
  };
  InputSet a = Inputs(8);
  a.id = 1;
  InputSet b = Inputs(8);
  b.id = 2;
  b.bytes[0].replace(0, 4, b.bytes[0].substr(28, 4));
  InputSet none = b;
  none.id = 0;
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(first(a), -3);
    EXPECT_EQ(first(a), -3);
    EXPECT_EQ(first(b), 4);
    EXPECT_EQ(first(a), -3);
    EXPECT_EQ(first(none), 4);
  }
}

TEST_F(Client, CompileErrorCarriesTheLog) {
  const auto compiled = client_.Compile(Make("y[i] = undeclared_name;"));
  ASSERT_TRUE(compiled.ok());
  EXPECT_FALSE(compiled->ok);
  EXPECT_NE(compiled->log.find("undeclared_name"), std::string::npos);
}

TEST_F(Client, CrashNamesTheSignalAndTheNextRunGetsAFreshWorker) {
  const Verdict verdict = RunBody("*static_cast<volatile int*>(nullptr) = static_cast<int>(x[i]);");
  EXPECT_EQ(verdict.kind, VerdictKind::kCrashed);
  EXPECT_EQ(client_.last_end().signal, SIGSEGV) << verdict.message;
  EXPECT_TRUE(RunBody("y[i] = x[i];").accepted());
  EXPECT_EQ(client_.started(), 2);
}

// The environments of the processes that this one has started and that run.
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

TEST_F(Client, AWorkerThatDiedBetweenRequestsIsReplaced) {
  // The worker dies with the thread that started it; the client outlives that thread.
  std::thread([&] { EXPECT_TRUE(RunBody("y[i] = x[i];").accepted()); }).join();
  for (int i = 0; i < 100 && client_.started() < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(RunBody("y[i] = x[i];").accepted());
  }
}

TEST_F(Client, AWorkerThatEndsLeavesNoFiles) {
  const TempDir folder = TempDir::Create("cudaforge-client-test-").value();
  const char* const set = getenv("TMPDIR");
  const std::string before = set != nullptr ? set : "/tmp";
  ASSERT_EQ(setenv("TMPDIR", folder.path().c_str(), 1), 0);
  const auto leave_a_file = [&] {  // where the worker and its compilers put theirs
    for (const auto& scratch : std::filesystem::directory_iterator(folder.path())) {
      EXPECT_TRUE(WriteFileAtomic(scratch.path().string() + "/left", "behind").ok());
    }
    return !std::filesystem::is_empty(folder.path());
  };
  EXPECT_TRUE(RunBody("y[i] = x[i];").accepted());
  EXPECT_TRUE(leave_a_file());
  RunBody("*static_cast<volatile int*>(nullptr) = static_cast<int>(x[i]);");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
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
  const auto run = client_.Run("BINARY", candidate, signature_, inputs_, {});
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->verdict.kind, VerdictKind::kRefused);
  EXPECT_EQ(client_.started(), 0);
}

TEST_F(Client, JunkBinaryIsALaunchError) {
  const auto run = client_.Run("junk", Make("y[i] = x[i];"), signature_, inputs_, {});
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->verdict.kind, VerdictKind::kLaunchError);
}

TEST_F(Client, InputsOfAnotherSignature) {
  EXPECT_FALSE(client_.Run("x", Make(""), signature_, Inputs(7), {}).ok());
}

// No verdict on the candidate, which another day compiles.
TEST(ClientStart, AMachineThatCannotCompile) {
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

TEST_F(Client, ProfileAndFacts) {
  const Candidate candidate = Make("y[i] = x[i] > 0 ? x[i] : 0;");
  const std::string binary = client_.Compile(candidate)->binary;
  const auto profile = client_.Profile(binary, candidate, signature_, inputs_, 1);
  ASSERT_TRUE(profile.ok()) << profile.status().ToString();
  ASSERT_EQ((*profile)["kernels"].size(), 1u) << *profile;
  EXPECT_EQ((*profile)["kernels"][0]["kernel"], "candidate");
  EXPECT_EQ((*profile)["tier"] == 1, !(*profile)["metrics"].empty()) << *profile;
  EXPECT_TRUE((*profile)["tier"] == 1 || (*profile)["note"] != "") << *profile;

  const auto facts = client_.Facts();
  ASSERT_TRUE(facts.ok()) << facts.status().ToString();
  EXPECT_GT((*facts)["bandwidth_gb_s"].get<double>(), 0) << *facts;
  EXPECT_EQ(*client_.Facts(), *facts) << "measured once";
  EXPECT_EQ(client_.Time(binary, candidate, signature_, inputs_, {.samples = 3}).ok(), true);
  EXPECT_EQ(client_.started(), 1);
}

TEST_F(Client, AProfileThatFailsLeavesTheWorkerUsable) {
  const Candidate candidate = Make("y[i] = x[i];");
  const std::string binary = client_.Compile(candidate)->binary;
  EXPECT_EQ(client_.Profile("JUNK", candidate, signature_, inputs_, 1).status().code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(client_.Profile(binary, candidate, signature_, inputs_, 77).status().code(),
            StatusCode::kUnavailable);
  EXPECT_TRUE(RunBody("y[i] = x[i];").accepted());
  EXPECT_TRUE(client_.Profile(binary, candidate, signature_, inputs_, 0).ok());
  EXPECT_EQ(client_.started(), 1);
  Candidate illegal = candidate;
  illegal.plan.launches[0].args[0].index = 9;
  EXPECT_EQ(client_.Profile(binary, illegal, signature_, inputs_, 0).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(CandidateRunnerOfATest, ProfilesNothing) {
  class Runner : public CandidateRunner {
    Result<CompileResult> Compile(const Candidate&) override { return CompileResult(); }
    Result<RunOutput> Run(const std::string&, const Candidate&, const OpSignature&, const InputSet&,
                          const RunPlan&) override {
      return RunOutput();
    }
    Result<double> Time(const std::string&, const Candidate&, const OpSignature&, const InputSet&,
                        const TimingPlan&) override {
      return 1.0;
    }
  } runner;
  EXPECT_EQ(runner.Profile("", {}, {}, {}, 1).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(runner.Facts().status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace cudaforge
