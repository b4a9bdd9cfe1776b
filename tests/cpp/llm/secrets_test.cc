#include "llm/secrets.h"

#include <gtest/gtest.h>

namespace cudaforge {
namespace {

TEST(SecretsTest, ReplacesKeys) {
  EXPECT_EQ(WithoutKey("a KEY b KEY", "KEY"), "a [key] b [key]");
  EXPECT_EQ(WithoutKey("nothing", ""), "nothing");
  EXPECT_EQ(WithoutKeys("KEY2 KEY OTHER", {"KEY2", "OTHER", "KEY", ""}), "[key] [key] [key]");
}

TEST(KeyFilterTest, FindsASplitKey) {
  const std::string key = "aab";
  const std::string text = "xaaabaaaabyaa";
  const std::string expected = "xa[key]aa[key]yaa";
  ASSERT_EQ(WithoutKey(text, key), expected);
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      KeyFilter filter(key);
      std::string out = filter.Pass(text.substr(0, first));
      out += filter.Pass(text.substr(first, second - first));
      out += filter.Pass(text.substr(second));
      EXPECT_EQ(out + filter.Rest(), expected) << first << " " << second;
    }
  }
}

TEST(KeyFilterTest, HoldsBackOnlyPossibleKeys) {
  KeyFilter filter("secret");
  EXPECT_EQ(filter.Pass("hello"), "hello");
  EXPECT_EQ(filter.Pass("s"), "");
  EXPECT_EQ(filter.Pass("un"), "sun");
  KeyFilter none("");
  EXPECT_EQ(none.Pass("hello"), "hello");
  EXPECT_EQ(none.Rest(), "");
}

}  // namespace
}  // namespace cudaforge
