#include "llm/http_provider.h"

#include <gtest/gtest.h>

#include <chrono>

#include "chat_events.h"
#include "http_server.h"

namespace cudaforge {
namespace {

using Peer = ScriptedServer::Connection;

// The reply of an openai provider at `server`; no error may hold the key.
Result<Reply> AskServer(const ScriptedServer& server, const LlmRequest& request,
                        const TextSink& on_text = {}, const Cancel& cancel = Cancel()) {
  auto provider = MakeProvider("openai:model-1", LocalSettings(server.url() + "/v1"));
  EXPECT_TRUE(provider.ok()) << provider.status().ToString();
  const auto start = std::chrono::steady_clock::now();
  Result<Reply> reply = (*provider)->Complete(request, cancel, on_text);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(reply.status().message().find(kTestKey), std::string::npos);
  return reply;
}

std::string StreamOf(const std::string& events) { return std::string(kStreamHead) + events; }

TEST(HttpProviderTest, StreamsASplitReply) {
  const std::string text = StreamOf(OpenAiStream({"caf\xc3\xa9 ", "\xf0\x9f\x98\x80"}));
  ScriptedServer server({[&text](Peer& peer) { peer.Drip(text, 7); }});
  std::string told;
  const Result<Reply> reply =
      AskServer(server, Ask("?"), [&told](std::string_view piece) { told.append(piece); });
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_EQ(reply->content, "caf\xc3\xa9 \xf0\x9f\x98\x80");
  EXPECT_EQ(told, reply->content);
  EXPECT_EQ(reply->usage.input_tokens, 100);
  EXPECT_EQ(reply->attempts, 1);
  EXPECT_GT(reply->seconds, 0);
  const std::string request = server.requests().at(0);
  EXPECT_TRUE(request.starts_with("POST /v1/chat/completions "));
  EXPECT_NE(request.find("Authorization: Bearer " + std::string(kTestKey)), std::string::npos);
}

TEST(HttpProviderTest, SupportsAnthropic) {
  ScriptedServer server({Says(StreamOf(AnthropicStream({"a", "b"})))});
  const auto provider = MakeProvider("anthropic:claude-1", LocalSettings(server.url()));
  ASSERT_TRUE(provider.ok());
  const Result<Reply> reply = (*provider)->Complete(Ask("?"), Cancel(), {});
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_EQ(reply->content, "ab");
  const std::string request = server.requests().at(0);
  EXPECT_TRUE(request.starts_with("POST /v1/messages "));
  EXPECT_NE(request.find("x-api-key: " + std::string(kTestKey)), std::string::npos);
  EXPECT_NE(request.find("anthropic-version: "), std::string::npos);
}

TEST(HttpProviderTest, AcceptsAnUnstreamedAnswer) {
  const Json document = {
      {"choices", {{{"message", {{"content", "x"}}}, {"finish_reason", "stop"}}}}};
  ScriptedServer server({Says(HttpText("200 OK", "\n " + document.dump()))});
  const Result<Reply> reply = AskServer(server, Ask("?"));
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_EQ(reply->content, "x");
}

TEST(HttpProviderTest, RetriesTransientFaults) {
  const std::string good = StreamOf(OpenAiStream({"good"}));
  const std::string limited = HttpText("429 Too Many Requests", "{}");
  const std::string with_time = HttpText("429 Too Many Requests", "{}", "Retry-After: 0\r\n");
  const std::string broken = HttpText("500 Internal Server Error", "<html>oops</html>");
  const std::string overloaded =
      StreamOf(SseText({{"error", {{"type", "overloaded_error"}, {"message", "busy"}}}}));
  for (const std::string& fault : {limited, with_time, broken, overloaded, std::string()}) {
    ScriptedServer server({Says(fault), Says(fault), Says(good)});
    const Result<Reply> reply = AskServer(server, Ask("?"));
    ASSERT_TRUE(reply.ok()) << fault << reply.status().ToString();
    EXPECT_EQ(reply->content, "good");
    EXPECT_EQ(reply->attempts, 3);
  }
}

TEST(HttpProviderTest, DoesNotWaitBeyondTheDeadline) {
  ScriptedServer server({Says(HttpText("429 Too Many Requests", "{}", "Retry-After: 3600\r\n"))});
  const Result<Reply> reply = AskServer(server, Ask("?"));
  EXPECT_EQ(reply.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(reply.status().message().find("3600 s"), std::string::npos) << reply.status().message();
}

TEST(HttpProviderTest, GivesUpAfterTheLastAttempt) {
  const auto broken = Says(HttpText("503 Service Unavailable", R"({"error": "down for repair"})"));
  ScriptedServer server({broken, broken, broken, broken});
  const Result<Reply> reply = AskServer(server, Ask("?"));
  EXPECT_EQ(reply.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(reply.status().message().find("HTTP 503: down for repair"), std::string::npos)
      << reply.status().message();
  EXPECT_EQ(server.requests().size(), 3u);
}

TEST(HttpProviderTest, RefusalsAreFinalAndHideTheKey) {
  const std::string key(kTestKey);
  for (const char* status :
       {"400 Bad Request", "401 Unauthorized", "403 Forbidden", "404 Not Found", "302 Found"}) {
    const Json body = {
        {"error", {{"message", "bad key " + key + "\x1b[31m" + std::string(9999, 'x')}}}};
    ScriptedServer server({Says(HttpText(status, body.dump())), Says(HttpText(status, "again"))});
    const Result<Reply> reply = AskServer(server, Ask("?"));
    EXPECT_EQ(reply.status().code(), StatusCode::kInvalidArgument);
    const std::string& message = reply.status().message();
    EXPECT_NE(message.find("bad key [key]?[31m"), std::string::npos) << message;
    EXPECT_LT(message.size(), 650u);
    EXPECT_EQ(server.requests().size(), 1u);
  }
}

TEST(HttpProviderTest, EchoedKeyIsReplaced) {
  const std::string key(kTestKey);
  ScriptedServer server(
      {Says(StreamOf(OpenAiStream({"your key is " + key.substr(0, 9), key.substr(9) + "!"})))});
  std::string told;
  const Result<Reply> reply =
      AskServer(server, Ask("?"), [&told](std::string_view piece) { told.append(piece); });
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->content, "your key is [key]!");
  EXPECT_EQ(told, reply->content);
}

// Servers without keys get a short one, which is not secret.
TEST(HttpProviderTest, PlaceholderKeyIsNotReplaced) {
  ScriptedServer server({Says(StreamOf(OpenAiStream({"extern int x;"}))),
                         Says(HttpText("400 Bad Request", R"({"error": "max_tokens"})"))});
  ProviderSettings settings = LocalSettings(server.url());
  settings.api_key = "x";
  const auto provider = MakeProvider("openai:model-x", settings);
  ASSERT_TRUE(provider.ok()) << provider.status().ToString();
  const Result<Reply> reply = (*provider)->Complete(Ask("?"), Cancel(), {});
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_EQ(reply->content, "extern int x;");
  EXPECT_NE(server.requests().at(0).find("Authorization: Bearer x\r\n"), std::string::npos);
  const Status refusal = (*provider)->Complete(Ask("?"), Cancel(), {}).status();
  EXPECT_NE(refusal.message().find("max_tokens"), std::string::npos) << refusal.message();
}

TEST(HttpProviderTest, LimitHasTheServicesFieldName) {
  const std::string refusal = HttpText(
      "400 Bad Request",
      R"({"error": {"message": "Unsupported parameter: 'max_tokens' is not supported with this )"
      R"(model. Use 'max_completion_tokens' instead."}})");
  const std::string good = StreamOf(OpenAiStream({"good"}));
  ScriptedServer server({Says(refusal), Says(good), Says(good), Says(refusal), Says(good)});
  const auto provider = MakeProvider("openai:model-1", LocalSettings(server.url()));
  ASSERT_TRUE(provider.ok());
  for (const int attempts : {2, 1}) {
    const Result<Reply> reply = (*provider)->Complete(Ask("?"), Cancel(), {});
    ASSERT_TRUE(reply.ok()) << reply.status().ToString();
    EXPECT_EQ(reply->content, "good");
    EXPECT_EQ(reply->attempts, attempts);
  }
  EXPECT_EQ((*provider)->Complete(Ask("?"), Cancel(), {}).status().code(),
            StatusCode::kInvalidArgument)
      << "asked once more, it still wants another name";
  std::string names;
  for (const std::string& request : server.requests()) {
    const bool is_new = request.find("\"max_completion_tokens\":") != std::string::npos;
    EXPECT_NE(is_new, request.find("\"max_tokens\":") != std::string::npos);
    names += is_new ? "new " : "old ";
  }
  EXPECT_EQ(names, "old new new new ");
}

TEST(HttpProviderTest, BrokenReplyIsNotRetried) {
  const std::string whole = StreamOf(OpenAiStream({"first", "second"}));
  const std::string cut = whole.substr(0, whole.find("second"));
  ScriptedServer server({Says(cut), Says(whole)});
  const Result<Reply> reply = AskServer(server, Ask("?"));
  EXPECT_EQ(reply.status().code(), StatusCode::kCorruption);
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST(HttpProviderTest, OneDeadlineForAllAttempts) {
  ScriptedServer server({Says(HttpText("500 Internal Server Error", "")), [](Peer& peer) {
                           peer.Send(kStreamHead);
                           peer.Repeat(": still here\n\n");
                         }});
  const Result<Reply> reply = AskServer(server, Ask("?", /*total_s=*/0.5));
  EXPECT_EQ(reply.status().code(), StatusCode::kTimeout);
}

TEST(HttpProviderTest, CancelledInTheMiddle) {
  Cancel cancel;
  ScriptedServer server({[](Peer& peer) {
    peer.Send(StreamOf(OpenAiStream({"a piece"})).substr(0, 500));
    peer.Hang();
  }});
  const Result<Reply> reply = AskServer(
      server, Ask("?"), [&cancel](std::string_view) { cancel.Set(); }, cancel);
  EXPECT_EQ(reply.status().code(), StatusCode::kCancelled);
}

TEST(HttpProviderTest, CancelledWhileWaitingForARetry) {
  Cancel cancel;
  ScriptedServer server({[&cancel](Peer& peer) {
    peer.Send(HttpText("429 Too Many Requests", "", "Retry-After: 10\r\n"));
    cancel.Set();
  }});
  EXPECT_EQ(AskServer(server, Ask("?"), {}, cancel).status().code(), StatusCode::kCancelled);
}

TEST(HttpProviderTest, LargeRepliesAreLimited) {
  LlmRequest request = Ask("?");
  request.limits.max_reply_bytes = 100'000;
  const std::string piece =
      SseText({{"choices", {{{"delta", {{"content", std::string(1000, 'x')}}}}}}});
  ScriptedServer streamed({[&piece](Peer& peer) {
    peer.Send(kStreamHead);
    while (peer.Send(piece)) {
    }
  }});
  EXPECT_EQ(AskServer(streamed, request).status().code(), StatusCode::kTimeout);
  for (const char* begin : {"{\"choices\": \"", "data: ", "", "{"}) {
    ScriptedServer whole({[begin](Peer& peer) {  // 50 MB of one line
      peer.Send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + std::string(begin));
      const std::string block(1 << 16, 'x');
      for (int i = 0; i < 800 && peer.Send(block); ++i) {
      }
    }});
    EXPECT_EQ(AskServer(whole, request).status().code(), StatusCode::kTimeout) << begin;
  }
}

TEST(HttpProviderTest, InvalidAnswers) {
  for (const char* body : {"", "hello", "<html></html>", "{", "{}", "[]", "data: x\n\n", "\xff\xfe",
                           "\n\n\n", ": only a comment\n\n"}) {
    ScriptedServer server({Says(HttpText("200 OK", body))});
    EXPECT_EQ(AskServer(server, Ask("?")).status().code(), StatusCode::kCorruption) << body;
  }
}

}  // namespace
}  // namespace cudaforge
