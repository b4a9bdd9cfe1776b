#include <gtest/gtest.h>

#include "chat_events.h"
#include "llm/chat_protocol.h"

namespace cudaforge {
namespace {

const ReplyLimits kAnthropicLimits;

Result<Reply> ReadAnthropic(const std::string& stream) {
  const auto protocol = MakeAnthropicProtocol("claude-1", false);
  const TextSink none;
  ReplyBuilder builder(kAnthropicLimits, "KEY", none);
  SseParser parser(1 << 20);
  const SseParser::Sink sink = [&](const SseEvent& e) { return protocol->OnEvent(e, &builder); };
  CF_RETURN_IF_ERROR(parser.Feed(stream, sink));
  CF_RETURN_IF_ERROR(parser.Finish(sink));
  return builder.Finish();
}

Result<Reply> ReadAnthropicDocument(const Json& document) {
  const TextSink none;
  ReplyBuilder builder(kAnthropicLimits, "KEY", none);
  CF_RETURN_IF_ERROR(MakeAnthropicProtocol("claude-1", false)->OnDocument(document, &builder));
  return builder.Finish();
}

TEST(AnthropicTest, ReadsAStream) {
  const Result<Reply> reply = ReadAnthropic(AnthropicStream({"int ", "x;"}));
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_EQ(reply->content, "int x;");
  EXPECT_EQ(reply->model, "claude-1");
  EXPECT_EQ(reply->finish_reason, "end_turn");
  EXPECT_EQ(reply->usage.input_tokens, 100);  // read from the cache, written to it, and neither
  EXPECT_EQ(reply->usage.cached_input_tokens, 60);
  EXPECT_EQ(reply->usage.output_tokens, 20);
}

TEST(AnthropicTest, LaterCountsDoNotLowerEarlierOnes) {
  const std::string whole = AnthropicStream({"a"});  // 100, 60 of them cached, and 20
  for (const Json& later : {Json{{"input_tokens", 0}, {"output_tokens", 0}},
                            Json{{"input_tokens", 10}, {"output_tokens", nullptr}},
                            Json{{"input_tokens", INT64_MAX}, {"output_tokens", INT64_MAX}}}) {
    const Result<Reply> reply = ReadAnthropic(
        whole + SseText({{"type", "message_delta"}, {"usage", later}}, "message_delta"));
    ASSERT_TRUE(reply.ok()) << reply.status().ToString();
    EXPECT_EQ(ToJson(reply->usage),
              (Json{{"input_tokens", 100}, {"cached_input_tokens", 60}, {"output_tokens", 20}}))
        << later;
  }
}

TEST(AnthropicTest, TruncatedStreamIsCorruption) {
  const std::string whole = AnthropicStream({"a"});
  const Result<Reply> cut = ReadAnthropic(whole.substr(0, whole.find("event: message_stop")));
  EXPECT_EQ(cut.status().code(), StatusCode::kCorruption);
}

TEST(AnthropicTest, ErrorEvents) {
  const Result<Reply> fault = ReadAnthropic(
      SseText({{"type", "error"},
               {"error", {{"type", "overloaded_error"}, {"message", "Overloaded, KEY"}}}},
              "error"));
  EXPECT_EQ(fault.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(fault.status().message().find("Overloaded, [key]"), std::string::npos);
}

TEST(AnthropicTest, ReadsAWholeDocument) {
  const Result<Reply> reply = ReadAnthropicDocument(
      {{"type", "message"},
       {"model", "claude-1"},
       {"stop_reason", "max_tokens"},
       {"content", {{{"type", "thinking"}, {"thinking", "hm"}}, {{"type", "text"}, {"text", "a"}}}},
       {"usage", {{"input_tokens", 1}, {"output_tokens", 2}}}});
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_EQ(reply->content, "a");
  EXPECT_TRUE(IsTruncated(*reply));
  EXPECT_EQ(reply->usage.input_tokens, 1);
  EXPECT_EQ(reply->usage.cached_input_tokens, std::nullopt);
}

TEST(AnthropicTest, WrongTypesAreErrors) {
  for (const char* bad :
       {"{}", "[]", R"({"content": "text"})", R"({"content": [{"type": "text", "text": 1}]})"}) {
    EXPECT_EQ(ReadAnthropicDocument(Json::parse(bad)).status().code(), StatusCode::kCorruption)
        << bad;
  }
  for (const char* bad : {"data: nonsense\n\n", "data: {}\n\n", "data: {\"type\": 1}\n\n"}) {
    EXPECT_EQ(ReadAnthropic(bad).status().code(), StatusCode::kCorruption) << bad;
  }
}

TEST(AnthropicTest, RequestHasTheServicesForm) {
  LlmRequest request;
  request.messages = {{Speaker::kSystem, "s"},
                      {Speaker::kUser, "u"},
                      {Speaker::kAssistant, "a"},
                      {Speaker::kSystem, "t"},
                      {Speaker::kUser, "v"}};
  const auto protocol = MakeAnthropicProtocol("m", false);
  const Json body = protocol->Body(request, true);
  EXPECT_EQ(body["system"], "s\n\nt");
  ASSERT_EQ(body["messages"].size(), 3u);
  EXPECT_EQ(body["messages"][1]["role"], "assistant");
  EXPECT_EQ(body["max_tokens"], request.limits.max_output_tokens);
  EXPECT_EQ(protocol->path(), "/v1/messages");
  EXPECT_EQ(MakeAnthropicProtocol("m", true)->path(), "/messages");
}

}  // namespace
}  // namespace cudaforge
