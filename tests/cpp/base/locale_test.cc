// Numbers are read and written equally in every locale.

#include <gtest/gtest.h>

#include <cstdio>

#include "base/config.h"
#include "base/json.h"
#include "base/text.h"
#include "tests/cpp/in_locale.h"

namespace cudaforge {
namespace {

class LocaleTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!locale_.there()) GTEST_SKIP() << InLocale::kMissing;
  }

  const InLocale locale_{GetParam()};
};

// The decimal point is a comma, or has two bytes: nlohmann's parser takes only the first byte.
INSTANTIATE_TEST_SUITE_P(Locales, LocaleTest, testing::Values("de_DE", "ps_AF"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(LocaleTest, IsNotThatOfC) {
  char text[16];
  std::snprintf(text, sizeof(text), "%.1f", 2.5);
  EXPECT_STRNE(text, "2.5");
}

TEST_P(LocaleTest, NumbersAreWritten) {
  EXPECT_EQ(Significant(1234.5, 6), "1234.5");
  EXPECT_EQ(Fixed(1234.5, 2), "1234.50");
  EXPECT_EQ(HexFloat(-3), "-0x1.8p+1");
  EXPECT_EQ(Cat("n = ", 1234567), "n = 1234567");
}

TEST_P(LocaleTest, NumbersAreRead) {
  EXPECT_EQ(ParseDouble("2.5"), 2.5);
  EXPECT_EQ(ParseDouble("2,5"), std::nullopt);
  const Config config =
      ReadConfig({{"CUDAFORGE_REGION_BUDGET_S", "2.5"}, {"OMP_NUM_THREADS", "4,2"}});
  EXPECT_EQ(config.region_budget_s, 2.5);
  EXPECT_EQ(config.threads, 4);
  EXPECT_TRUE(config.warnings.empty());
}

TEST_P(LocaleTest, JsonIsReadAndWritten) {
  const std::string text = R"({"a":[0.3,1234.5,-1e-300],"n":1234567})";
  const Result<Json> json = ParseJson(text);
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  EXPECT_EQ((*json)["a"][0].get<double>(), 0.3);
  EXPECT_EQ(CanonicalJson(*json), text);
  EXPECT_EQ(LenientCopy(*json), *json);
}

TEST_P(LocaleTest, AFailedCheckShowsPlainNumbers) {
  try {
    CF_CHECK(false) << 1234567;
  } catch (const CheckError& error) {
    EXPECT_NE(std::string(error.what()).find(" 1234567"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace cudaforge
