#include "llm/text.h"

#include <gtest/gtest.h>

namespace cudaforge {
namespace {

TEST(TextTest, KnowsUtf8) {
  for (const char* good : {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                           "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  // A lone continuation, overlong forms, a surrogate, beyond the last character, cut short.
  for (const char* bad :
       {"\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xe2\x82", "a\xf0\x9f\x98", "\xff"}) {
    EXPECT_FALSE(IsUtf8(bad));
  }
}

TEST(TextTest, PrintableIsShortPlainAscii) {
  EXPECT_EQ(Printable("  a\r\n\tb \x1b[31mc\xc3\xa9\x01  ", 100), "a b ?[31mc??");
  EXPECT_EQ(Printable("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(Printable("abcdefghi", 8), "abcde...");
  EXPECT_EQ(Printable(std::string(10 << 20, '\xff'), 500).size(), 500u);
}

TEST(TextTest, BlotsKeys) {
  EXPECT_EQ(WithoutKey("a KEY b KEY", "KEY"), "a [key] b [key]");
  EXPECT_EQ(WithoutKey("nothing", ""), "nothing");
  EXPECT_EQ(WithoutKeys("KEY2 KEY OTHER", {"KEY2", "OTHER", "KEY", ""}), "[key] [key] [key]");
}

TEST(KeyFilterTest, FindsAKeyHoweverItIsCut) {
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

TEST(KeyFilterTest, HoldsNothingBackWithoutReason) {
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
