#include "llm/http.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <stdexcept>

#include "http_server.h"

namespace cudaforge {
namespace {

using Connection = ScriptedServer::Connection;

constexpr double kGenerous = 20;  // seconds that no bounded request may take

// One post to a URL, with what came of it.
struct Post {
  Status status;
  HttpAnswer answer;
  std::string body;
  double seconds = 0;

  explicit Post(const std::string& url, HttpLimits limits = {}, Cancel* cancel = nullptr) {
    HttpRequest request{*ParseEndpoint(url), "/path", {"X-Test: yes"}, "{\"a\": 1}"};
    const Cancel never;
    const auto start = std::chrono::steady_clock::now();
    status = HttpPost(
        request, limits, cancel != nullptr ? *cancel : never,
        [this](const HttpAnswer&, std::string_view bytes) {
          body.append(bytes);
          return Status::Ok();
        },
        &answer);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_LT(seconds, kGenerous);
  }
};

TEST(HttpTest, PostsAndReads) {
  const std::string text =
      HttpText("200 OK", "hello", "Content-Type: Text/Plain; charset=utf-8\r\nRETRY-AFTER: 7\r\n");
  ScriptedServer server({[&text](Connection& c) { c.Drip(text, 1); }});
  const Post post(server.url() + "/base");
  ASSERT_TRUE(post.status.ok()) << post.status.ToString();
  EXPECT_EQ(post.answer.status, 200);
  EXPECT_EQ(post.answer.content_type, "text/plain");
  EXPECT_EQ(post.answer.retry_after, "7");
  EXPECT_EQ(post.answer.bytes, text.size());
  EXPECT_EQ(post.body, "hello");
  const std::string request = server.requests().at(0);
  EXPECT_TRUE(request.starts_with("POST /base/path HTTP/1.1\r\n")) << request;
  EXPECT_NE(request.find("X-Test: yes\r\n"), std::string::npos);
  EXPECT_EQ(request.find("Expect:"), std::string::npos);
  EXPECT_TRUE(request.ends_with("\r\n\r\n{\"a\": 1}"));
}

TEST(HttpTest, FollowsNoRedirect) {
  ScriptedServer target({Says(HttpText("200 OK", "secret"))});
  ScriptedServer server({Says(HttpText("302 Found", "", "Location: " + target.url() + "\r\n"))});
  const Post post(server.url());
  ASSERT_TRUE(post.status.ok());
  EXPECT_EQ(post.answer.status, 302);
  EXPECT_TRUE(target.requests().empty());
}

TEST(HttpTest, ConnectionRefused) {
  int port = 0;
  {
    const ScriptedServer gone({});
    port = gone.port();
  }
  const Post post("http://127.0.0.1:" + std::to_string(port));
  EXPECT_EQ(post.status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(post.answer.connection_fault);
  EXPECT_NE(post.status.message().find("127.0.0.1"), std::string::npos);
}

TEST(HttpTest, ConnectTimeout) {
  const FullListener full;
  const Post post(full.url(), {.connect_s = 0.2});
  EXPECT_EQ(post.status.code(), StatusCode::kUnavailable) << post.status.ToString();
  EXPECT_TRUE(post.answer.connection_fault);
}

TEST(HttpTest, ClosedBeforeAnyByteIsAConnectionFault) {
  ScriptedServer server({[](Connection&) {}});
  const Post post(server.url());
  EXPECT_EQ(post.status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(post.answer.connection_fault);
}

TEST(HttpTest, ClosedInTheMiddleIsNoConnectionFault) {
  const std::string text = HttpText("200 OK", "a body that is cut");
  ScriptedServer server({Says(text.substr(0, text.size() - 4))});
  const Post post(server.url());
  EXPECT_EQ(post.status.code(), StatusCode::kUnavailable);
  EXPECT_FALSE(post.answer.connection_fault);
  EXPECT_EQ(post.body, "a body that is");
}

TEST(HttpTest, TlsAgainstAPlainPort) {
  ScriptedServer server({Says(HttpText("400 Bad Request", "plain"))});
  const Post post("https://127.0.0.1:" + std::to_string(server.port()));
  EXPECT_EQ(post.status.code(), StatusCode::kUnavailable);
  EXPECT_FALSE(post.answer.connection_fault);  // a retry would not help
}

TEST(HttpTest, NeverAnswers) {
  ScriptedServer server({[](Connection& c) { c.Hang(); }});
  const Post post(server.url(), {.first_byte_s = 0.2});
  EXPECT_EQ(post.status.code(), StatusCode::kTimeout);
  EXPECT_NE(post.status.message().find("did not begin to answer within 0.2 s"), std::string::npos)
      << post.status.message();
}

TEST(HttpTest, HeadersForEver) {
  ScriptedServer server({[](Connection& c) {
    c.Send("HTTP/1.1 200 OK\r\n");
    c.Repeat("X-More: of the same\r\n");
  }});
  const Post post(server.url(), {.first_byte_s = 0.3});
  EXPECT_EQ(post.status.code(), StatusCode::kTimeout);
}

TEST(HttpTest, IdleTimeout) {
  ScriptedServer server({[](Connection& c) {
    c.Send(kStreamHead);
    c.Send("data: x\n\n");
    c.Hang();
  }});
  const Post post(server.url(), {.idle_s = 0.2});
  EXPECT_EQ(post.status.code(), StatusCode::kTimeout);
  EXPECT_NE(post.status.message().find(server.url()), std::string::npos) << "names the service";
  EXPECT_EQ(post.body, "data: x\n\n");
}

TEST(HttpTest, SlowLorisReachesTheTotalDeadline) {
  ScriptedServer server({[](Connection& c) {
    c.Send(kStreamHead);
    c.Repeat(".");
  }});
  const Post post(server.url(), {.left_s = 0.4});
  EXPECT_EQ(post.status.code(), StatusCode::kTimeout);
  EXPECT_NE(post.status.message().find("deadline"), std::string::npos);
}

TEST(HttpTest, LargeAnswerReachesTheLimit) {
  ScriptedServer server({[](Connection& c) {
    c.Send("HTTP/1.1 200 OK\r\nContent-Length: 52428800\r\n\r\n");
    const std::string block(1 << 16, 'x');
    for (int i = 0; i < 800 && c.Send(block); ++i) {
    }
  }});
  const Post post(server.url(), {.max_bytes = 1 << 20});
  EXPECT_EQ(post.status.code(), StatusCode::kTimeout);
  EXPECT_LE(post.body.size(), size_t{1} << 20);
}

TEST(HttpTest, HeadersCountAgainstTheLimit) {
  ScriptedServer server({[](Connection& c) {
    c.Send("HTTP/1.1 200 OK\r\n");
    const std::string line = "X-Long: " + std::string(1000, 'x') + "\r\n";
    while (c.Send(line)) {
    }
  }});
  const Post post(server.url(), {.max_bytes = 20'000});
  EXPECT_EQ(post.status.code(), StatusCode::kTimeout);
}

TEST(HttpTest, CancelledInTheMiddle) {
  Cancel cancel;
  ScriptedServer server({[&cancel](Connection& c) {
    c.Send(kStreamHead);
    c.Send("data: x\n\n");
    cancel.Set();
    c.Hang();
  }});
  const Post post(server.url(), {}, &cancel);
  EXPECT_EQ(post.status.code(), StatusCode::kCancelled);
  const Post at_once(server.url(), {}, &cancel);
  EXPECT_EQ(at_once.status.code(), StatusCode::kCancelled);
}

TEST(HttpTest, TheSinksErrorEndsIt) {
  ScriptedServer server({Says(HttpText("200 OK", "hello")), Says(HttpText("200 OK", "hello"))});
  HttpRequest request{*ParseEndpoint(server.url()), "/", {}, "{}"};
  const Cancel cancel;
  HttpAnswer answer;
  const Status status = HttpPost(
      request, {}, cancel,
      [](const HttpAnswer&, std::string_view) { return Status::Corruption("no"); }, &answer);
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  const HttpBodySink throwing = [](const HttpAnswer&, std::string_view) -> Status {
    throw std::runtime_error("thrown");
  };
  EXPECT_THROW((void)HttpPost(request, {}, cancel, throwing, &answer), std::runtime_error);
}

TEST(HttpTest, DoesNotChangeSignals) {
  struct sigaction before, after;
  sigset_t mask_before, mask_after;
  sigaction(SIGPIPE, nullptr, &before);
  pthread_sigmask(SIG_SETMASK, nullptr, &mask_before);
  ScriptedServer server({Says(HttpText("200 OK", "hello"))});
  EXPECT_TRUE(Post(server.url()).status.ok());
  sigaction(SIGPIPE, nullptr, &after);
  pthread_sigmask(SIG_SETMASK, nullptr, &mask_after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  EXPECT_EQ(sigismember(&mask_before, SIGPIPE), sigismember(&mask_after, SIGPIPE));
}

}  // namespace
}  // namespace cudaforge
