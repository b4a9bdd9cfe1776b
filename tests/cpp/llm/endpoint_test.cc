#include "llm/endpoint.h"

#include <gtest/gtest.h>

namespace cudaforge {
namespace {

TEST(EndpointTest, ReadsAddresses) {
  const Result<Endpoint> service = ParseEndpoint("https://API.openai.com/v1/");
  ASSERT_TRUE(service.ok());
  EXPECT_EQ(service->url, "https://API.openai.com/v1");
  EXPECT_EQ(service->host, "api.openai.com");
  EXPECT_TRUE(service->tls);
  EXPECT_FALSE(service->loopback);
  for (const char* local : {"http://localhost:8000/v1", "http://127.0.0.1", "http://127.1.2.3:1",
                            "http://[::1]:8080/v1", "http://LOCALHOST"}) {
    const Result<Endpoint> endpoint = ParseEndpoint(local);
    ASSERT_TRUE(endpoint.ok()) << local;
    EXPECT_TRUE(endpoint->loopback) << local;
  }
  for (const char* far : {"http://127.0.0.1.example.com", "http://localhost.example.com",
                          "http://127.1", "http://0127.0.0.1", "http://[::2]", "http://10.0.0.1",
                          "http://128.0.0.1", "http://127.0.0.1.1"}) {
    const Result<Endpoint> endpoint = ParseEndpoint(far);
    ASSERT_TRUE(endpoint.ok()) << far;
    EXPECT_FALSE(endpoint->loopback) << far;
  }
}

TEST(EndpointTest, RefusesAmbiguousAddresses) {
  for (const char* bad : {"",
                          "localhost:8000",
                          "ftp://host",
                          "file:///etc/passwd",
                          "http://",
                          "http:///v1",
                          "http://user:password@host/",
                          "http://localhost@evil.example",
                          "http://host?x=1",
                          "http://host#x",
                          "http://ho st",
                          "http://host\\@localhost",
                          "http://host:port",
                          "http://host:",
                          "http://[::1",
                          "http://[::1]x",
                          "http://[localhost]",
                          "http://%6cocalhost",
                          "http://h\xc3\xb6st",
                          "http://host\r\nX: y",
                          "HTTP://host"}) {
    const Result<Endpoint> endpoint = ParseEndpoint(bad);
    EXPECT_EQ(endpoint.status().code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(endpoint.status().message().find("password@"), std::string::npos);
  }
}

TEST(EndpointTest, KeysAreOnlySentEncrypted) {
  const auto check = [](const char* url, std::string_view key) {
    return CheckKey(*ParseEndpoint(url), key).ok();
  };
  EXPECT_TRUE(check("https://example.com", "key"));
  EXPECT_TRUE(check("http://127.0.0.1:8000", "key"));
  EXPECT_TRUE(check("http://example.com", ""));
  EXPECT_FALSE(check("http://example.com", "key"));
  EXPECT_FALSE(check("https://example.com", "key\r\nX-Other: header"));
  EXPECT_FALSE(check("https://example.com", "two words"));
}

}  // namespace
}  // namespace cudaforge
