#include "base/subprocess.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace cudaforge {
namespace {

TEST(RunProcessTest, PassesInputAndSeparatesStreams) {
  const std::string input(300'000, 'x');  // more than a pipe holds
  const Result<ProcessResult> run =
      RunProcess({"sh", "-c", "cat; echo err >&2; exit 4"}, {.input = input});
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_EQ(run->output, input);
  EXPECT_EQ(run->errors, "err\n");
  EXPECT_EQ(run->exit_code, 4);
  EXPECT_EQ(run->term_signal, 0);
  EXPECT_FALSE(run->timed_out || run->cancelled || run->too_large);
}

TEST(RunProcessTest, JoinsTheStreams) {
  const Result<ProcessResult> run =
      RunProcess({"sh", "-c", "echo out; echo err >&2; exit 3"}, {.join_errors = true});
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_EQ(run->exit_code, 3);
  EXPECT_EQ(run->output, "out\nerr\n");
  EXPECT_EQ(run->errors, "");
}

TEST(RunProcessTest, ReportsSignals) {
  const Result<ProcessResult> run = RunProcess({"sh", "-c", "kill -SEGV $$"});
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->term_signal, SIGSEGV);
}

TEST(IsProgramTest, IsProgramNeedsAnExecutableFile) {
  EXPECT_TRUE(IsProgram("sh"));
  EXPECT_TRUE(IsProgram("/bin/sh"));
  for (const char* name : {"no-such-program-here", "/no/such/program", "/tmp", "/etc/passwd", ""}) {
    EXPECT_FALSE(IsProgram(name)) << name;
  }
}

TEST(RunProcessTest, MissingProgram) {
  EXPECT_EQ(RunProcess({"/no/such/program"}).status().code(), StatusCode::kUnavailable);
}

TEST(RunProcessTest, InputMayStayUnread) {
  const std::string input(300'000, 'x');
  const Result<ProcessResult> run = RunProcess({"true"}, {.input = input});
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->exit_code, 0);  // and no SIGPIPE here
  const Result<ProcessResult> none = RunProcess({"cat"});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->output, "");
}

TEST(RunProcessTest, KillsTheWholeGroupAtTheTimeout) {
  const auto start = std::chrono::steady_clock::now();
  const Result<ProcessResult> run =
      RunProcess({"sh", "-c", "sleep 100 & sleep 100"}, {.timeout_ms = 100});
  ASSERT_TRUE(run.ok());
  EXPECT_TRUE(run->timed_out);
  EXPECT_EQ(run->term_signal, SIGKILL);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
}

TEST(RunProcessTest, KillsWhenCancelled) {
  Cancel cancel;
  std::thread other([&cancel] { cancel.Set(); });
  const Result<ProcessResult> run = RunProcess({"sleep", "100"}, {.cancel = &cancel});
  other.join();
  ASSERT_TRUE(run.ok());
  EXPECT_TRUE(run->cancelled);
  EXPECT_FALSE(run->timed_out);
}

TEST(RunProcessTest, KillsAtTheLimitOfOutputAndKeepsTheEndOfErrors) {
  const Result<ProcessResult> run = RunProcess({"yes"}, {.max_output = 1000});
  ASSERT_TRUE(run.ok());
  EXPECT_TRUE(run->too_large);
  EXPECT_EQ(run->output.size(), 1000u);
  const Result<ProcessResult> errors =
      RunProcess({"sh", "-c", "seq 100000 >&2; echo the end >&2"}, {.keep_errors = 10});
  ASSERT_TRUE(errors.ok());
  EXPECT_EQ(errors->errors, "0\nthe end\n");
}

TEST(RunProcessTest, DoesNotWaitForGrandchildren) {
  const auto start = std::chrono::steady_clock::now();
  const Result<ProcessResult> run = RunProcess({"sh", "-c", "sleep 100 & echo done"});
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->output, "done\n");
  EXPECT_EQ(run->exit_code, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
}

TEST(ChildProcessTest, CommunicatesOverDescriptorThree) {
  Result<ChildProcess> child =
      ChildProcess::Start({"sh", "-c", "read line <&3; echo got $line >&3"});
  ASSERT_TRUE(child.ok()) << child.status().ToString();
  ASSERT_EQ(send(child->socket(), "hello\n", 6, 0), 6);
  char answer[32] = {};
  ASSERT_EQ(recv(child->socket(), answer, 10, MSG_WAITALL), 10);
  EXPECT_STREQ(answer, "got hello\n");
  EXPECT_EQ(child->WaitOrKill(10'000).ToString(), "exit code 0");
}

TEST(ChildProcessTest, KillReportsTheEnd) {
  Result<ChildProcess> child = ChildProcess::Start({"sleep", "100"});
  ASSERT_TRUE(child.ok());
  const pid_t pid = child->pid();
  EXPECT_EQ(child->Kill().ToString(), "signal 9 (Killed)");
  EXPECT_EQ(child->Kill().signal, SIGKILL);
  EXPECT_NE(kill(pid, 0), 0);
}

}  // namespace
}  // namespace cudaforge
