#include "llm/message.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

namespace cudaforge {
namespace {

TEST(MessageTest, RequestsAsJson) {
  LlmRequest request;
  request.role = AgentRole::kJudge;
  request.messages = {{Speaker::kSystem, "a"}, {Speaker::kAssistant, "b \xff"}};
  request.limits.max_output_tokens = 5;
  const Json json = ToJson(request);
  EXPECT_EQ(json["role"], "judge");
  EXPECT_EQ(json["messages"][0], (Json{{"role", "system"}, {"content", "a"}}));
  EXPECT_EQ(json["messages"][1]["content"], "b \xef\xbf\xbd");
  EXPECT_EQ(json["limits"]["max_output_tokens"], 5);
}

TEST(MessageTest, RepliesRoundTrip) {
  Reply reply;
  reply.content = "text";
  reply.usage = {10, std::nullopt, 3};
  reply.model = "m";
  reply.finish_reason = "stop";
  reply.attempts = 2;
  reply.seconds = 0.1;
  const Json json = ToJson(reply);
  EXPECT_FALSE(json["usage"].contains("cached_input_tokens"));
  const Result<Reply> back = ReplyFromJson(json);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(ToJson(*back), json);
  EXPECT_EQ(back->usage.cached_input_tokens, std::nullopt);
}

TEST(MessageTest, RepliesOfWrongTypes) {
  for (const char* bad : {"[]", "\"text\"", "{}", R"({"content": 1})", R"({"content": null})",
                          R"({"content": "x", "usage": 3})", R"({"content": "x", "model": 3})"}) {
    EXPECT_EQ(ReplyFromJson(Json::parse(bad)).status().code(), StatusCode::kCorruption) << bad;
  }
  const Result<Reply> odd = ReplyFromJson(Json::parse(
      R"({"content": "", "usage": {"input_tokens": 1.5, "output_tokens": 18446744073709551615},
          "attempts": -4, "other": [1]})"));
  ASSERT_TRUE(odd.ok());
  EXPECT_EQ(odd->usage.input_tokens, std::nullopt);
  EXPECT_EQ(odd->usage.output_tokens, std::nullopt);
  EXPECT_EQ(odd->attempts, 1);
}

TEST(MessageTest, RepliesAsText) {
  Reply reply;
  reply.content = std::string(10, '\x01');
  const std::string text = ToJson(reply).dump();
  EXPECT_LE(text.size(), MostJsonBytes(10));
  EXPECT_EQ(ReadReply(text, "there", 10, {})->content.size(), 10u);
  EXPECT_EQ(ReadReply(text, "there", 9, {}).status().code(), StatusCode::kTimeout);
  for (const char* bad : {"", "{\"content\": \"a\"} b", "secret-key", "[]"}) {
    const Status status = ReadReply(bad, "there", 10, {"secret-key"}).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruption) << bad;
    EXPECT_EQ(status.message().find("there: "), 0u) << status.message();
    EXPECT_EQ(status.message().find("secret-key"), std::string::npos) << status.message();
  }
}

TEST(MessageTest, SecondsAreClamped) {
  for (const auto& [given, taken] :
       {std::pair(-1.0, 0.0), std::pair(2.5, 2.5), std::pair(1e300, 1e9),
        std::pair(std::numeric_limits<double>::infinity(), 1e9),
        std::pair(std::numeric_limits<double>::quiet_NaN(), 0.0)}) {
    EXPECT_EQ(ReplyFromJson({{"content", ""}, {"seconds", given}})->seconds, taken) << given;
  }
}

TEST(MessageTest, ImpossibleCountsAreAbsent) {
  const Json counts = Json::parse(
      R"({"none": 0, "most": 1000000000000, "over": 1000000000001, "max": 9223372036854775807,
          "unsigned": 18446744073709551615, "minus": -1, "min": -9223372036854775808})");
  EXPECT_EQ(TokenCount(counts, "none"), 0);
  EXPECT_EQ(TokenCount(counts, "most"), kMostTokens);
  for (const char* absent : {"over", "max", "unsigned", "minus", "min", "missing"}) {
    EXPECT_EQ(TokenCount(counts, absent), std::nullopt) << absent;
  }
}

}  // namespace
}  // namespace cudaforge
