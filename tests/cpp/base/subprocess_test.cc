#include "base/subprocess.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

namespace cudaforge {
namespace {

TEST(RunProcessTest, CollectsBothStreamsAndTheExitCode) {
  const Result<ProcessResult> run =
      RunProcess({"sh", "-c", "echo out; echo err >&2; exit 3"}, 10'000);
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_EQ(run->exit_code, 3);
  EXPECT_EQ(run->term_signal, 0);
  EXPECT_NE(run->output.find("out"), std::string::npos);
  EXPECT_NE(run->output.find("err"), std::string::npos);
}

TEST(RunProcessTest, ReportsSignals) {
  const Result<ProcessResult> run = RunProcess({"sh", "-c", "kill -SEGV $$"}, 10'000);
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->term_signal, SIGSEGV);
}

TEST(RunProcessTest, KillsTheWholeGroupAtTheTimeout) {
  const auto start = std::chrono::steady_clock::now();
  const Result<ProcessResult> run = RunProcess({"sh", "-c", "sleep 100 & sleep 100"}, 100);
  ASSERT_TRUE(run.ok());
  EXPECT_TRUE(run->timed_out);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
}

TEST(RunProcessTest, CutsOutput) {
  const Result<ProcessResult> run = RunProcess({"sh", "-c", "yes | head -c 100000"}, 10'000, 1000);
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->output.size(), 1000u);
  EXPECT_EQ(run->exit_code, 0);
}

TEST(RunProcessTest, MissingProgram) {
  EXPECT_EQ(RunProcess({"/no/such/program"}, 1000).status().code(), StatusCode::kUnavailable);
}

TEST(ChildProcessTest, SpeaksOverDescriptorThree) {
  Result<ChildProcess> child =
      ChildProcess::Start({"sh", "-c", "read line <&3; echo got $line >&3"});
  ASSERT_TRUE(child.ok()) << child.status().ToString();
  ASSERT_EQ(send(child->socket(), "hello\n", 6, 0), 6);
  char answer[32] = {};
  ASSERT_EQ(recv(child->socket(), answer, 10, MSG_WAITALL), 10);
  EXPECT_STREQ(answer, "got hello\n");
  EXPECT_EQ(child->WaitOrKill(10'000), "exit code 0");
}

TEST(ChildProcessTest, KillSaysHowItEnded) {
  Result<ChildProcess> child = ChildProcess::Start({"sleep", "100"});
  ASSERT_TRUE(child.ok());
  const pid_t pid = child->pid();
  EXPECT_EQ(child->Kill(), "signal 9 (Killed)");
  EXPECT_EQ(child->Kill(), "signal 9 (Killed)");
  EXPECT_NE(kill(pid, 0), 0);
}

}  // namespace
}  // namespace cudaforge
