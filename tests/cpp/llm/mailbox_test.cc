#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "http_server.h"
#include "llm/local_provider.h"

namespace cudaforge {
namespace {

class MailboxTest : public testing::Test {
 protected:
  MailboxTest() : dir_(*TempDir::Create("mailbox_test")), box_(dir_.path() + "/new/box") {
    provider_ = *MakeMailboxProvider(box_);
  }

  // The reply to `request`; `answer` runs once the request file exists.
  template <typename Answer>
  Result<Reply> Exchange(const std::string& request_name, Answer answer,
                         const LlmRequest& request = Ask("?")) {
    std::thread other([&] {
      for (int i = 0; i < 2000 && !PathExists(box_ + "/" + request_name); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      answer();
    });
    const auto start = std::chrono::steady_clock::now();
    Result<Reply> reply = provider_->Complete(request, cancel_, {});
    other.join();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    return reply;
  }
  void Write(const std::string& name, std::string_view bytes) const {
    EXPECT_TRUE(WriteFileAtomic(box_ + "/" + name, bytes).ok());
  }

  TempDir dir_;
  std::string box_;
  Cancel cancel_;
  std::unique_ptr<Provider> provider_;
};

TEST_F(MailboxTest, AnsweredWithAnObjectAndWithText) {
  const Result<Reply> first = Exchange("0001-coder.request.json", [this] {
    Write("0001-coder.reply.json", R"({"content": "a", "usage": {"output_tokens": 2}})");
  });
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(first->content, "a");
  EXPECT_EQ(first->usage.output_tokens, 2);
  const Result<Json> asked = ParseJson(*ReadFile(box_ + "/0001-coder.request.json"));
  ASSERT_TRUE(asked.ok());
  EXPECT_EQ(*asked, ToJson(Ask("?")));

  LlmRequest judge = Ask("?");
  judge.role = AgentRole::kJudge;
  const Result<Reply> second = Exchange(
      "0002-judge.request.json", [this] { Write("0002-judge.reply.txt", "plain\ntext\n"); }, judge);
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_EQ(second->content, "plain\ntext\n");
  EXPECT_EQ(second->usage.input_tokens, std::nullopt);
}

TEST_F(MailboxTest, IgnoresOldFiles) {
  Write("0007-coder.reply.txt", "an old reply");
  const Result<Reply> reply =
      Exchange("0008-coder.request.json", [this] { Write("0008-coder.reply.txt", "a new one"); });
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_EQ(reply->content, "a new one");
}

TEST_F(MailboxTest, WaitsForAFileThatGrows) {
  const std::string path = box_ + "/0001-coder.reply.txt";
  const Result<Reply> reply = Exchange("0001-coder.request.json", [&path] {
    FILE* file = fopen(path.c_str(), "w");
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      fputs("line\n", file);
      fflush(file);
    }
    fclose(file);
  });
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->content, "line\nline\nline\nline\nline\n");
}

TEST_F(MailboxTest, RefusesOtherThanPlainFiles) {
  Write("../secret", "secret");
  const auto refused = [this](const std::string& request, auto make) {
    const Result<Reply> reply = Exchange(request, make);
    EXPECT_EQ(reply.status().code(), StatusCode::kCorruption) << reply.status().ToString();
    EXPECT_NE(reply.status().message().find("plain file"), std::string::npos);
  };
  refused("0001-coder.request.json", [this] {
    EXPECT_EQ(
        symlink((dir_.path() + "/new/secret").c_str(), (box_ + "/0001-coder.reply.txt").c_str()),
        0);
  });
  refused("0002-coder.request.json",
          [this] { EXPECT_EQ(mkfifo((box_ + "/0002-coder.reply.json").c_str(), 0600), 0); });
  refused("0003-coder.request.json",
          [this] { EXPECT_EQ(mkdir((box_ + "/0003-coder.reply.json").c_str(), 0700), 0); });
}

TEST_F(MailboxTest, RefusesTooLargeOrMalformedReplies) {
  LlmRequest request = Ask("?");
  request.limits.max_reply_bytes = 10;
  EXPECT_EQ(Exchange(
                "0001-coder.request.json", [this] { Write("0001-coder.reply.txt", "01234567890"); },
                request)
                .status()
                .code(),
            StatusCode::kTimeout);
  EXPECT_EQ(
      Exchange(
          "0002-coder.request.json",
          [this] { Write("0002-coder.reply.json", R"({"content": "01234567890"})"); }, request)
          .status()
          .code(),
      StatusCode::kTimeout);
  EXPECT_EQ(Exchange("0003-coder.request.json", [this] { Write("0003-coder.reply.txt", "\xff"); })
                .status()
                .code(),
            StatusCode::kCorruption);
  EXPECT_EQ(Exchange("0004-coder.request.json", [this] { Write("0004-coder.reply.json", "{"); })
                .status()
                .code(),
            StatusCode::kCorruption);
}

TEST_F(MailboxTest, EndsAtTheDeadlineAndWhenCancelled) {
  EXPECT_EQ(Exchange(
                "0001-coder.request.json", [] {}, Ask("?", 0.1))
                .status()
                .code(),
            StatusCode::kTimeout);
  EXPECT_EQ(Exchange("0002-coder.request.json", [this] { cancel_.Set(); }).status().code(),
            StatusCode::kCancelled);
}

TEST_F(MailboxTest, NeedsAFolder) {
  Write("plain", "x");
  EXPECT_FALSE(MakeMailboxProvider(box_ + "/plain").ok());
  std::filesystem::remove_all(box_);
  EXPECT_FALSE(provider_->Complete(Ask("?"), cancel_, {}).ok());
}

}  // namespace
}  // namespace cudaforge
