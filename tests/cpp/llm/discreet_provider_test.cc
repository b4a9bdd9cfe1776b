#include "llm/discreet_provider.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/file.h"
#include "http_server.h"

namespace cudaforge {
namespace {

// Sends `pieces`, then ends with the given status.
class IndiscreetProvider : public Provider {
 public:
  IndiscreetProvider(std::vector<std::string> pieces, Result<Reply> end)
      : pieces_(std::move(pieces)), end_(std::move(end)) {}
  std::string name() const override { return "command:indiscreet"; }
  Result<Reply> Complete(const LlmRequest&, const Cancel&, const TextSink& on_text) override {
    Result<Reply> reply = end_;
    for (const std::string& piece : pieces_) {
      if (on_text) on_text(piece);
      if (reply.ok()) reply->content += piece;
    }
    return reply;
  }

 private:
  const std::vector<std::string> pieces_;
  const Result<Reply> end_;
};

TEST(DiscreetProviderTest, FiltersReplies) {
  Reply end;
  end.model = "model-SECRET1\x1b[31m";
  end.finish_reason = "SECRET2";
  end.usage = {1, 2, 3};
  // The longer key contains the shorter one, and both are split.
  const auto provider = MakeDiscreetProvider(
      std::make_unique<IndiscreetProvider>(
          std::vector<std::string>{"a SEC", "RET1", "23 b SECRET", "2 c SECRET", "1 d SECR"}, end),
      {"SECRET123", "SECRET1", "SECRET2"});
  std::string told;
  const Result<Reply> reply =
      provider->Complete(Ask("?"), Cancel(), [&told](std::string_view text) { told.append(text); });
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->content, "a [key] b [key] c [key] d SECR");
  EXPECT_EQ(told, reply->content);
  EXPECT_EQ(reply->model, "model-[key]?[31m");
  EXPECT_EQ(reply->finish_reason, "[key]");
  EXPECT_EQ(reply->usage.output_tokens, 3);
  EXPECT_EQ(provider->name(), "command:indiscreet");
  EXPECT_EQ(provider->Complete(Ask("?"), Cancel(), {})->content, reply->content);
}

TEST(DiscreetProviderTest, FiltersErrors) {
  const auto provider = MakeDiscreetProvider(
      std::make_unique<IndiscreetProvider>(std::vector<std::string>{"x SECRET"},
                                           Status::Unavailable("no SECRET1, no SECRET2")),
      {"SECRET1", "SECRET2"});
  std::string told;
  const Result<Reply> reply =
      provider->Complete(Ask("?"), Cancel(), [&told](std::string_view text) { told.append(text); });
  EXPECT_EQ(reply.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(reply.status().message(), "no [key], no [key]");
  EXPECT_EQ(told, "x ");
}

TEST(DiscreetProviderTest, AnswersInAMailboxAreFiltered) {
  const auto dir = TempDir::Create("discreet_test");
  ASSERT_TRUE(dir.ok());
  ProviderSettings settings;
  settings.environment["OPENAI_API_KEY"] = std::string(kTestKey) + "\n";
  settings.environment["ANTHROPIC_API_KEY"] = "x";  // for a server without keys
  const auto provider = MakeProvider("mailbox:" + dir->path(), settings);
  ASSERT_TRUE(provider.ok());
  std::thread other([&dir] {
    const Json answer = {{"content", "int x; " + std::string(kTestKey)}, {"model", kTestKey}};
    while (access((dir->path() + "/0001-coder.request.json").c_str(), F_OK) != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(WriteFileAtomic(dir->path() + "/0001-coder.reply.json", answer.dump()).ok());
  });
  const Result<Reply> reply = (*provider)->Complete(Ask("?"), Cancel(), {});
  other.join();
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_EQ(reply->content, "int x; [key]");
  EXPECT_EQ(reply->model, "[key]");
}

}  // namespace
}  // namespace cudaforge
