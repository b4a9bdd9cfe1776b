#include "base/subprocess.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

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

TEST(RunFilterTest, GivesInputAndKeepsTheStreamsApart) {
  const std::string input(300'000, 'x');  // more than a pipe holds
  const Result<FilterResult> run = RunFilter({"sh", "-c", "cat; echo err >&2; exit 4"}, input);
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_EQ(run->output, input);
  EXPECT_EQ(run->errors, "err\n");
  EXPECT_EQ(run->exit_code, 4);
  EXPECT_FALSE(run->timed_out || run->cancelled || run->too_large);
  EXPECT_EQ(RunFilter({"/no/such/program"}, "").status().code(), StatusCode::kUnavailable);
}

TEST(RunFilterTest, InputMayStayUnread) {
  const Result<FilterResult> run = RunFilter({"true"}, std::string(300'000, 'x'));
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->exit_code, 0);  // and no SIGPIPE here
  const Result<FilterResult> none = RunFilter({"cat"}, "");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->output, "");
}

TEST(RunFilterTest, KillsAtTheTimeout) {
  FilterOptions options;
  options.timeout_ms = 100;
  const auto start = std::chrono::steady_clock::now();
  const Result<FilterResult> run = RunFilter({"sh", "-c", "sleep 100 & sleep 100"}, "", options);
  ASSERT_TRUE(run.ok());
  EXPECT_TRUE(run->timed_out);
  EXPECT_EQ(run->term_signal, SIGKILL);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
}

TEST(RunFilterTest, KillsWhenCancelled) {
  Cancel cancel;
  FilterOptions options;
  options.cancel = &cancel;
  std::thread other([&cancel] { cancel.Set(); });
  const Result<FilterResult> run = RunFilter({"sleep", "100"}, "", options);
  other.join();
  ASSERT_TRUE(run.ok());
  EXPECT_TRUE(run->cancelled);
  EXPECT_FALSE(run->timed_out);
}

TEST(RunFilterTest, KillsAtTheLimitOfOutputAndKeepsTheEndOfErrors) {
  FilterOptions options;
  options.max_output = 1000;
  const Result<FilterResult> run = RunFilter({"yes"}, "", options);
  ASSERT_TRUE(run.ok());
  EXPECT_TRUE(run->too_large);
  EXPECT_EQ(run->output.size(), 1000u);
  options.keep_errors = 10;
  const Result<FilterResult> errors =
      RunFilter({"sh", "-c", "seq 100000 >&2; echo the end >&2"}, "", options);
  ASSERT_TRUE(errors.ok());
  EXPECT_EQ(errors->errors, "0\nthe end\n");
}

TEST(RunFilterTest, DoesNotWaitForWhatTheChildLeftBehind) {
  const auto start = std::chrono::steady_clock::now();
  const Result<FilterResult> run = RunFilter({"sh", "-c", "sleep 100 & echo done"}, "");
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->output, "done\n");
  EXPECT_EQ(run->exit_code, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
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
