#include "worker/compilers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"

namespace cudaforge {
namespace {

constexpr int kMs = 60'000;
constexpr const char* kArch = "cpu:any";

class CompilersTest : public testing::Test {
 protected:
  // The host compiler, which logs its calls in a file and sleeps first.
  Compilers Make(int most, const std::string& sleeps = "0") {
    const std::string cxx = folder_.path() + "/cxx";
    std::ofstream(cxx) << "#!/bin/sh\ncase \"$*\" in *-shared*) echo $PPID >> " << Calls()
                       << "; sleep " << sleeps << ";; esac\nexec g++ \"$@\"\n";
    std::filesystem::permissions(cxx, std::filesystem::perms::owner_all);
    WorkerOptions options;
    options.executable = std::string(CUDAFORGE_BINARY_DIR) + "/cudaforge-worker";
    options.cxx = cxx;
    return Compilers(std::move(options), most);
  }
  std::string Calls() const { return folder_.path() + "/calls"; }
  std::vector<std::string> Lines() const {
    std::ifstream file(Calls());
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  int calls() const { return static_cast<int>(Lines().size()); }
  std::set<std::string> processes() const {  // that called it
    const std::vector<std::string> lines = Lines();
    return {lines.begin(), lines.end()};
  }
  static Candidate Returning(int value) {
    Candidate candidate;
    candidate.source.language = Language::kCpu;
    candidate.source.code = "extern \"C\" int k() { return " + std::to_string(value) + "; }\n";
    return candidate;
  }

  const TempDir folder_ = TempDir::Create("cudaforge-compilers").value();
};

TEST_F(CompilersTest, ReturnResults) {
  Compilers compilers = Make(2);
  EXPECT_EQ(compilers.most(), 2);
  const auto right = compilers.Finish(Returning(1), kArch, kMs, nullptr);
  ASSERT_TRUE(right.ok()) << right.status().ToString();
  EXPECT_TRUE(right->ok) << right->log;
  EXPECT_FALSE(right->binary.empty());
  Candidate wrong = Returning(1);
  wrong.source.code += "int x = ;\n";
  const auto failed = compilers.Finish(wrong, kArch, kMs, nullptr);
  ASSERT_TRUE(failed.ok());
  EXPECT_FALSE(failed->ok);
  EXPECT_NE(failed->log.find("error"), std::string::npos) << failed->log;
}

TEST_F(CompilersTest, CandidateBegunInAdvanceIsCompiledOnce) {
  Compilers compilers = Make(2);
  for (int i = 0; i < 4; ++i) compilers.Begin(Returning(i), kArch);
  compilers.Begin(Returning(3), kArch);
  for (int i = 3; i >= 0; --i) {
    EXPECT_TRUE(compilers.Finish(Returning(i), kArch, kMs, nullptr)->ok);
  }
  EXPECT_EQ(calls(), 4);
  EXPECT_TRUE(compilers.Finish(Returning(0), kArch, kMs, nullptr)->ok);
  EXPECT_EQ(calls(), 5) << "a result is given once";
}

TEST_F(CompilersTest, CompileInParallelInReusedProcesses) {
  Compilers compilers = Make(3, "0.3");
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3; ++i) compilers.Begin(Returning(10 * round + i), kArch);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(compilers.Finish(Returning(10 * round + i), kArch, kMs, nullptr)->ok);
    }
  }
  EXPECT_EQ(calls(), 6);
  EXPECT_EQ(processes().size(), 3u) << "each compiled twice";
}

TEST_F(CompilersTest, AwaitedJobsGoFirst) {
  Compilers compilers = Make(1, "0.3");
  for (int i = 0; i < 20; ++i) compilers.Begin(Returning(i), kArch);
  EXPECT_TRUE(compilers.Finish(Returning(19), kArch, kMs, nullptr)->ok);
  EXPECT_LE(calls(), 3);
}

TEST_F(CompilersTest, ForgottenJobIsNotStarted) {
  Compilers compilers = Make(1, "0.3");
  for (int i = 0; i < 9; ++i) compilers.Begin(Returning(i), kArch);
  for (int i = 1; i < 9; ++i) compilers.Forget(Returning(i), kArch);
  EXPECT_TRUE(compilers.Finish(Returning(0), kArch, kMs, nullptr)->ok);
  EXPECT_TRUE(compilers.Finish(Returning(99), kArch, kMs, nullptr)->ok);
  EXPECT_LE(calls(), 3);
}

TEST_F(CompilersTest, WaitingEndsAtTimeoutAndCancellation) {
  Compilers compilers = Make(1, "30");
  compilers.Begin(Returning(1), kArch);
  const double began = SteadySeconds();
  const auto late = compilers.Finish(Returning(1), kArch, 300, nullptr);
  ASSERT_TRUE(late.ok());
  EXPECT_FALSE(late->ok);
  EXPECT_EQ(late->log, "the compiler did not finish within 300 ms");
  Cancel cancel;
  cancel.Set();
  EXPECT_EQ(compilers.Finish(Returning(1), kArch, kMs, &cancel).status().code(),
            StatusCode::kCancelled);
  EXPECT_LT(SteadySeconds() - began, 20) << "nor does the end wait for the compiler";
}

// Two forges may have the same source.
TEST_F(CompilersTest, SharedJobIsNotForgotten) {
  Compilers compilers = Make(1, "0.3");
  compilers.Begin(Returning(0), kArch);
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      const auto result = compilers.Finish(Returning(1), kArch, kMs, nullptr);
      right += static_cast<int>(result.ok() && result->ok);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  compilers.Forget(Returning(1), kArch);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 2);
  EXPECT_TRUE(compilers.Finish(Returning(0), kArch, kMs, nullptr).ok());  // counted by then
  EXPECT_EQ(calls(), 2);
}

TEST_F(CompilersTest, TimedOutJobIsDropped) {
  Compilers compilers = Make(1, "0.5");
  compilers.Begin(Returning(0), kArch);
  EXPECT_FALSE(compilers.Finish(Returning(1), kArch, 100, nullptr)->ok);
  EXPECT_TRUE(compilers.Finish(Returning(2), kArch, kMs, nullptr)->ok);
  EXPECT_EQ(calls(), 2) << "what is not wanted any more is not compiled";
}

TEST_F(CompilersTest, UnstartableWorkerIsUnavailable) {
  WorkerOptions options;
  options.executable = "/nowhere/cudaforge-worker";
  Compilers compilers(std::move(options), 1);
  EXPECT_EQ(compilers.Finish(Returning(1), kArch, kMs, nullptr).status().code(),
            StatusCode::kUnavailable);
}

// Above the number kept, unused results are dropped, and recompiled if needed.
TEST_F(CompilersTest, UnusedResultsAreDropped) {
  Compilers compilers = Make(1, "0.01");
  for (int i = 0; i < 500; ++i) compilers.Begin(Returning(i), kArch);
  EXPECT_TRUE(compilers.Finish(Returning(0), kArch, kMs, nullptr)->ok);
  EXPECT_TRUE(compilers.Finish(Returning(499), kArch, kMs, nullptr)->ok);
}

}  // namespace
}  // namespace cudaforge
