#include <gtest/gtest.h>

#include "chat_events.h"
#include "llm/chat_protocol.h"

namespace cudaforge {
namespace {

const ReplyLimits kOpenAiLimits;

// The reply to a streamed answer.
Result<Reply> ReadOpenAi(const std::string& stream, std::string* told = nullptr) {
  const auto protocol = MakeOpenAiProtocol("model-1", false);
  const TextSink on_text = [told](std::string_view text) {
    if (told != nullptr) told->append(text);
  };
  ReplyBuilder builder(kOpenAiLimits, "KEY", on_text);
  SseParser parser(1 << 20);
  const SseParser::Sink sink = [&](const SseEvent& e) { return protocol->OnEvent(e, &builder); };
  CF_RETURN_IF_ERROR(parser.Feed(stream, sink));
  CF_RETURN_IF_ERROR(parser.Finish(sink));
  return builder.Finish();
}

Result<Reply> ReadOpenAiDocument(const Json& document) {
  const TextSink none;
  ReplyBuilder builder(kOpenAiLimits, "KEY", none);
  CF_RETURN_IF_ERROR(MakeOpenAiProtocol("model-1", false)->OnDocument(document, &builder));
  return builder.Finish();
}

TEST(OpenAiTest, ReadsAStream) {
  std::string told;
  const Result<Reply> reply =
      ReadOpenAi(OpenAiStream({"int ", "x = ", "1;\n\xf0\x9f\x98\x80"}), &told);
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_EQ(reply->content, "int x = 1;\n\xf0\x9f\x98\x80");
  EXPECT_EQ(told, reply->content);
  EXPECT_EQ(reply->model, "model-1");
  EXPECT_EQ(reply->finish_reason, "stop");
  EXPECT_EQ(reply->usage.input_tokens, 100);
  EXPECT_EQ(reply->usage.cached_input_tokens, 60);
  EXPECT_EQ(reply->usage.output_tokens, 20);
  EXPECT_FALSE(IsTruncated(*reply));
}

TEST(OpenAiTest, MissingCountsAreAbsent) {
  const Result<Reply> none = ReadOpenAi(OpenAiStream({"x"}, nullptr));
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->usage.input_tokens, std::nullopt);
  const Result<Reply> odd = ReadOpenAi(OpenAiStream(
      {"x"}, {{"prompt_tokens", -1}, {"completion_tokens", "20"}, {"prompt_cache_hit_tokens", 3}}));
  ASSERT_TRUE(odd.ok());
  EXPECT_EQ(odd->usage.input_tokens, std::nullopt);
  EXPECT_EQ(odd->usage.output_tokens, std::nullopt);
  EXPECT_EQ(odd->usage.cached_input_tokens, 3);
}

TEST(OpenAiTest, LaterCountsDoNotLowerEarlierOnes) {
  const auto usage = [](const Json& counts) {
    return SseText({{"choices", Json::array()}, {"usage", counts}});
  };
  const std::string whole = OpenAiStream({"x"});  // 100, 60 of them cached, and 20
  const std::string rest = whole.substr(0, whole.find("data: [DONE]"));
  for (const Json& later :
       {Json(), Json::object(), Json{{"prompt_tokens", nullptr}, {"completion_tokens", nullptr}},
        Json{{"prompt_tokens", 0}, {"completion_tokens", 0}},
        Json{{"prompt_tokens", 99}, {"completion_tokens", INT64_MAX}}}) {
    const Result<Reply> reply = ReadOpenAi(rest + usage(later));
    ASSERT_TRUE(reply.ok()) << reply.status().ToString();
    EXPECT_EQ(ToJson(reply->usage),
              (Json{{"input_tokens", 100}, {"cached_input_tokens", 60}, {"output_tokens", 20}}))
        << later;
  }
  // Servers that send running counts, and one that counts in two pieces.
  const Result<Reply> grown =
      ReadOpenAi(rest + usage({{"completion_tokens", 21}}) + usage({{"prompt_tokens", 101}}));
  ASSERT_TRUE(grown.ok());
  EXPECT_EQ(grown->usage.input_tokens, 101);
  EXPECT_EQ(grown->usage.output_tokens, 21);
}

TEST(OpenAiTest, TruncatedStreamIsCorruption) {
  const std::string whole = OpenAiStream({"a", "b"});
  const Result<Reply> cut = ReadOpenAi(whole.substr(0, whole.find("\"stop\"") - 120));
  EXPECT_EQ(cut.status().code(), StatusCode::kCorruption);
  EXPECT_EQ(ReadOpenAi("").status().code(), StatusCode::kCorruption);
  // Without [DONE], but with a finish reason, it is complete.
  EXPECT_TRUE(ReadOpenAi(whole.substr(0, whole.find("data: [DONE]"))).ok());
}

TEST(OpenAiTest, ReadsAWholeDocument) {
  const Result<Reply> reply = ReadOpenAiDocument(
      {{"model", "m"},
       {"choices", {{{"message", {{"content", "text"}}}, {"finish_reason", "length"}}}},
       {"usage", {{"prompt_tokens", 5}, {"completion_tokens", 6}}}});
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_EQ(reply->content, "text");
  EXPECT_TRUE(IsTruncated(*reply));
  EXPECT_EQ(reply->usage.output_tokens, 6);
  EXPECT_EQ(reply->usage.cached_input_tokens, std::nullopt);
}

TEST(OpenAiTest, WrongTypesAreErrors) {
  for (const char* bad :
       {"{}", "[]", "null", R"({"choices": {}})", R"({"choices": [{"message": {"content": 1}}]})",
        R"({"choices": [{"message": {"content": ["a"]}}]})"}) {
    EXPECT_EQ(ReadOpenAiDocument(Json::parse(bad)).status().code(), StatusCode::kCorruption) << bad;
  }
  for (const char* bad : {"data: nonsense\n\n", "data: []\n\n", "data: {\"choices\": 1}\n\n",
                          "data: {\"choices\": [{\"delta\": {\"content\": NaN}}]}\n\n",
                          "data: {\"choices\": [{\"delta\": {\"content\": \"\xff\"}}]}\n\n",
                          "data: {\"a\": 1, \"a\": 1}\n\n"}) {
    EXPECT_EQ(ReadOpenAi(bad).status().code(), StatusCode::kCorruption) << bad;
  }
  EXPECT_EQ(ReadOpenAi("data: " + std::string(100'000, '[') + "\n\n").status().code(),
            StatusCode::kCorruption);
}

TEST(OpenAiTest, FaultsInTheAnswer) {
  const Result<Reply> fault = ReadOpenAiDocument({{"error", {{"message", "no KEY today"}}}});
  EXPECT_EQ(fault.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(fault.status().message().find("no [key] today"), std::string::npos)
      << fault.status().message();
}

TEST(OpenAiTest, RequestHasTheServicesForm) {
  LlmRequest request;
  request.messages = {{Speaker::kSystem, "s"}, {Speaker::kUser, "bad \xff byte"}};
  request.limits.max_output_tokens = 7;
  const Json own = MakeOpenAiProtocol("m", true)->Body(request, true);
  EXPECT_EQ(own["max_completion_tokens"], 7);
  EXPECT_EQ(own["stream"], true);
  EXPECT_EQ(own["stream_options"]["include_usage"], true);
  EXPECT_EQ(own["messages"][1]["content"], "bad \xef\xbf\xbd byte");
  const Json other = MakeOpenAiProtocol("m", false)->Body(request, false);
  EXPECT_EQ(other["max_tokens"], 7);
  EXPECT_FALSE(other.contains("stream"));
  EXPECT_TRUE(MakeOpenAiProtocol("m", false)->Headers("").empty());
}

TEST(OpenAiTest, KnowsBothNamesOfTheLimit) {
  for (const bool own : {false, true}) {
    const auto protocol = MakeOpenAiProtocol("m", own);
    const std::string name = own ? "max_completion_tokens" : "max_tokens";
    const std::string other = own ? "max_tokens" : "max_completion_tokens";
    EXPECT_TRUE(protocol->NeedsOtherNames("'" + name + "'? Use '" + other + "' instead."));
    EXPECT_FALSE(protocol->NeedsOtherNames("'" + name + "' is too large"));
    const Json body = protocol->WithOtherNames(protocol->Body(LlmRequest(), true));
    EXPECT_TRUE(body.contains(other) && !body.contains(name) && body.contains("messages")) << body;
  }
}

}  // namespace
}  // namespace cudaforge
