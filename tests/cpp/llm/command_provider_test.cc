#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "http_server.h"
#include "llm/local_provider.h"

namespace cudaforge {
namespace {

// A provider that runs a shell script.
Result<Reply> AskScript(const std::string& script, const LlmRequest& request = Ask("?"),
                        const Cancel& cancel = Cancel(), const TextSink& on_text = {}) {
  const auto start = std::chrono::steady_clock::now();
  Result<Reply> reply =
      (*MakeCommandProvider({"sh", "-c", script}))->Complete(request, cancel, on_text);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  return reply;
}

TEST(CommandProviderTest, ExchangesJsonObjects) {
  std::string told;
  const Result<Reply> reply = AskScript(
      "grep -q '\"role\":\"coder\"' && echo "
      "'{\"content\": \"int x;\", \"usage\": {\"input_tokens\": 3, \"output_tokens\": 4}}'",
      Ask("?"), Cancel(), [&told](std::string_view text) { told.append(text); });
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_EQ(reply->content, "int x;");
  EXPECT_EQ(told, "int x;");
  EXPECT_EQ(reply->usage.input_tokens, 3);
  EXPECT_EQ(reply->usage.cached_input_tokens, std::nullopt);
  EXPECT_EQ(reply->usage.output_tokens, 4);
}

TEST(CommandProviderTest, PassesTheWholeRequest) {
  const Result<TempDir> dir = TempDir::Create("command_test");
  ASSERT_TRUE(dir.ok());
  const LlmRequest request = Ask("a line\nand \"quotes\"" + std::string(200'000, 'x'));
  ASSERT_TRUE(AskScript("cat > " + dir->path() + "/in; echo '{\"content\": \"\"}'", request).ok());
  const Result<Json> received = ParseJson(*ReadFile(dir->path() + "/in"));
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(*received, ToJson(request));
}

TEST(CommandProviderTest, FailuresIncludeStandardError) {
  const Result<Reply> exit = AskScript("seq 1000 >&2; echo 'no model \x1b[31mloaded' >&2; exit 3");
  EXPECT_EQ(exit.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(exit.status().message().find("exit code 3"), std::string::npos);
  EXPECT_TRUE(exit.status().message().ends_with("exit code 3: no model ?[31mloaded"))
      << exit.status().message();
  const std::string traceback = "echo 'Traceback:'; echo '  File x'; echo 'ValueError: no model'";
  const Result<Reply> blank = AskScript("(" + traceback + "; echo; echo ' ') >&2; exit 1");
  EXPECT_TRUE(blank.status().message().ends_with("exit code 1: ValueError: no model"))
      << blank.status().message();
  EXPECT_TRUE(AskScript("echo >&2; exit 1").status().message().ends_with("exit code 1"));
  EXPECT_LT(AskScript("seq -s x 1000 >&2; exit 1").status().message().size(), 600u);
  EXPECT_NE(AskScript("kill -9 $$").status().message().find("signal 9"), std::string::npos);
  const Status missing = MakeCommandProvider({"/no/such/program"}).status();
  EXPECT_EQ(missing.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(missing.message().ends_with("/no/such/program: no such program, or not executable"));
  EXPECT_NE(MakeCommandProvider({"nosuchprogram"}).status().message().find("(looked for on PATH)"),
            std::string::npos);
  const std::string here = std::filesystem::current_path().string();
  EXPECT_NE(MakeCommandProvider({"./no/such"}).status().message().find("current folder, " + here),
            std::string::npos);
}

TEST(CommandProviderTest, InvalidAnswers) {
  for (const char* answer : {"", "hello", "[]", "{}", "{\"content\": 1}", "{\"content\": \"a\"} x",
                             "{\"content\": \"a\", \"content\": \"b\"}", "\\377"}) {
    const Status status =
        AskScript("echo no model >&2; printf '" + std::string(answer) + "'").status();
    EXPECT_EQ(status.code(), StatusCode::kCorruption) << answer;
    const std::string advice = "; the program must print {\"content\": TEXT}: no model";
    EXPECT_TRUE(status.message().ends_with(advice)) << status.message();
  }
}

TEST(CommandProviderTest, TruncatedErrorsHideKeys) {
  std::string key;
  for (int i = 0; i < 100; ++i) key += std::to_string(1000 + i) + "-";
  // Some of these lines are cut inside a key by the limits.
  for (const int repeats : {1, 2, 11, 400}) {
    for (const int after : {0, 100, 300, 450, 3900}) {
      const std::string script = "i=0; while [ $i -lt " + std::to_string(repeats) +
                                 " ]; do printf " + key + " >&2; i=$((i+1)); done; printf %0" +
                                 std::to_string(after) + "d 0 >&2; exit 1";
      const Status status = (*MakeCommandProvider({"sh", "-c", script}, {key}))
                                ->Complete(Ask("?"), Cancel(), {})
                                .status();
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      EXPECT_EQ(status.message().find("-10"), std::string::npos) << status.message();
    }
  }
  const std::string bad = "echo '{\"" + std::string(300, 'a') + key + "\": '";
  EXPECT_EQ((*MakeCommandProvider({"sh", "-c", bad}, {key}))
                ->Complete(Ask("?"), Cancel(), {})
                .status()
                .message()
                .find("-10"),
            std::string::npos);
}

TEST(CommandProviderTest, BoundsTimeAndBytes) {
  EXPECT_EQ(AskScript("sleep 100 & sleep 100", Ask("?", 0.2)).status().code(),
            StatusCode::kTimeout);
  EXPECT_EQ(AskScript("exec yes").status().code(), StatusCode::kTimeout);
  LlmRequest request = Ask("?");
  request.limits.max_reply_bytes = 10;
  EXPECT_EQ(AskScript("echo '{\"content\": \"01234567890\"}'", request).status().code(),
            StatusCode::kTimeout);
  EXPECT_TRUE(AskScript("echo '{\"content\": \"0123456789\"}'", request).ok());
}

TEST(CommandProviderTest, IsCancelled) {
  Cancel cancel;
  std::thread other([&cancel] { cancel.Set(); });
  EXPECT_EQ(AskScript("sleep 100", Ask("?"), cancel).status().code(), StatusCode::kCancelled);
  other.join();
}

}  // namespace
}  // namespace cudaforge
