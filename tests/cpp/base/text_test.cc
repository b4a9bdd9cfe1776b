#include "base/text.h"

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

TEST(TextTest, EscapedShowsEveryByte) {
  EXPECT_EQ(Escaped("a \xe9\x1b\n", 80), R"(a \xe9\x1b\x0a)");
  EXPECT_EQ(Escaped("abc", 2), "ab");
}

}  // namespace
}  // namespace cudaforge
