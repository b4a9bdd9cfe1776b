#include "llm/curl_api.h"

#include <gtest/gtest.h>

namespace cudaforge {
namespace {

TEST(CurlApiTest, MissingLibraryHasAdvice) {
  const Result<CurlApi> none = CurlApi::Open({"libcurl-that-is-not-there.so.4"});
  ASSERT_EQ(none.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(none.status().message().find("libcurl4"), std::string::npos);
}

TEST(CurlApiTest, NamesTheMissingFunction) {
  const Result<CurlApi> other = CurlApi::Open({"libc.so.6"});
  ASSERT_EQ(other.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(other.status().message().find("curl_global_init"), std::string::npos);
}

TEST(CurlApiTest, OpensTheSystemsOnce) {
  const Result<CurlApi>& api = CurlApi::Get();
  ASSERT_TRUE(api.ok()) << api.status().ToString();
  EXPECT_EQ(&api, &CurlApi::Get());
}

}  // namespace
}  // namespace cudaforge
