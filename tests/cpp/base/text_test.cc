#include "base/text.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

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

TEST(TextTest, EscapedShowsEveryByte) {
  EXPECT_EQ(Escaped("a \xe9\x1b\n", 80), R"(a \xe9\x1b\x0a)");
  EXPECT_EQ(Escaped("abc", 2), "ab");
}

TEST(TextTest, AWordIsInAListAsAWhole) {
  constexpr std::string_view kViews[] = {"one", "two"};
  const std::vector<std::string> strings = {"one", "two"};
  for (const char* there : {"one", "two"}) {
    EXPECT_TRUE(IsIn(there, kViews));
    EXPECT_TRUE(IsIn(there, strings));
  }
  for (const char* absent : {"", "on", "ones"}) EXPECT_FALSE(IsIn(absent, strings)) << absent;
}

TEST(TextTest, NumbersHaveTheDigitsAskedFor) {
  EXPECT_EQ(Significant(0.12345, 3), "0.123");
  EXPECT_EQ(Significant(2.5, 6), "2.5");
  EXPECT_EQ(Significant(1.5e9, 3), "1.5e+09");
  EXPECT_EQ(Fixed(0.125, 4), "0.1250");
  EXPECT_EQ(Fixed(1e300, 1).size(), 303u) << "however long it gets";
}

}  // namespace
}  // namespace cudaforge
