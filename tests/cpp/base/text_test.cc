#include "base/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace cudaforge {
namespace {

TEST(TextTest, DetectsUtf8) {
  for (const char* good : {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                           "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  // A lone continuation, overlong forms, a surrogate, a code point out of range, truncated text.
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

TEST(TextTest, FindsWholeWordsInAList) {
  constexpr std::string_view kViews[] = {"one", "two"};
  const std::vector<std::string> strings = {"one", "two"};
  for (const char* there : {"one", "two"}) {
    EXPECT_TRUE(IsIn(there, kViews));
    EXPECT_TRUE(IsIn(there, strings));
  }
  for (const char* absent : {"", "on", "ones"}) EXPECT_FALSE(IsIn(absent, strings)) << absent;
}

TEST(TextTest, NumbersHaveTheRequestedDigits) {
  EXPECT_EQ(Significant(0.12345, 3), "0.123");
  EXPECT_EQ(Significant(2.5, 6), "2.5");
  EXPECT_EQ(Significant(1.5e9, 3), "1.5e+09");
  EXPECT_EQ(Fixed(0.125, 4), "0.1250");
  EXPECT_EQ(Fixed(1e300, 1).size(), 303u) << "however long it gets";
}

std::string Printed(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

TEST(TextTest, NumbersMatchPrintf) {
  using Limits = std::numeric_limits<double>;
  std::vector<double> values = {0.0,
                                -0.0,
                                1.0,
                                -1.5,
                                0.1,
                                1e23,
                                Limits::max(),
                                Limits::min(),
                                Limits::denorm_min(),
                                -Limits::denorm_min()};
  std::mt19937_64 random(0);
  while (values.size() < 20000) {
    uint64_t bits = random();
    if (values.size() % 4 == 0) bits &= ~(uint64_t{0x7ff} << 52);            // denormal
    if (values.size() % 3 == 0) bits &= ~uint64_t{0} << values.size() % 52;  // few digits
    const auto value = std::bit_cast<double>(bits);
    if (std::isfinite(value)) values.push_back(value);
  }
  for (const double value : values) {
    if (std::fpclassify(value) == FP_SUBNORMAL) {  // libraries choose other exponents
      ASSERT_EQ(std::strtod(HexFloat(value).c_str(), nullptr), value);
    } else {
      ASSERT_EQ(HexFloat(value), Printed("%a", value));
    }
    ASSERT_EQ(Significant(value, 17), Printed("%.17g", value));
    ASSERT_EQ(Significant(value, 3), Printed("%.3g", value));
    ASSERT_EQ(ParseDouble(Significant(value, 17)), value);
  }
  for (const double value : {-Limits::infinity(), Limits::quiet_NaN()}) {
    EXPECT_EQ(Significant(value, 6), Printed("%.6g", value));
    EXPECT_EQ(Fixed(value, 6), Printed("%.6f", value));
  }
}

TEST(TextTest, NumberMustBeTheWholeText) {
  EXPECT_EQ(ParseDouble("2.5"), 2.5);
  EXPECT_EQ(ParseDouble(" +1e3"), 1000);
  for (const char* none : {"", " ", "+", "+-1", "2,5", "2.5s", "1e999", "--1"}) {
    EXPECT_EQ(ParseDouble(none), std::nullopt) << none;
  }
  EXPECT_EQ(ParseInteger<int>("-12"), -12);
  EXPECT_EQ(ParseInteger<uint8_t>("255"), 255);
  for (const char* none : {"", "-1", "+1", " 1", "1 ", "256", "0x1", "1."}) {
    EXPECT_EQ(ParseInteger<uint8_t>(none), std::nullopt) << none;
  }
}

TEST(TextTest, SplitGivesPartsAsGetlineDoes) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(Split("a,,b", ','), (Parts{"a", "", "b"}));
  EXPECT_EQ(Split("a,", ','), Parts{"a"});
  EXPECT_EQ(Split(",", ','), Parts{""});
  EXPECT_EQ(Split("", ','), Parts{});
}

TEST(TextTest, CatJoins) {
  const std::string text = "text";
  EXPECT_EQ(Cat(text, ' ', "a", std::string_view("b"), -1000, size_t{1000}, int64_t{1}),
            "text ab-100010001");
}

TEST(TextTest, LettersAndDigitsAreOfAscii) {
  EXPECT_TRUE(IsLetter('a') && IsLetter('Z') && IsDigit('0') && IsDigit('9'));
  for (const char other : {'\0', '@', '[', '`', '{', '/', ':', '_', '\xe4', '\xff'}) {
    EXPECT_FALSE(IsLetter(other) || IsDigit(other)) << static_cast<int>(other);
  }
}

}  // namespace
}  // namespace cudaforge
