#include "llm/prices.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace cudaforge {
namespace {

constexpr std::string_view kPriceFile = R"({"models": {
  "gpt-5*": {"input": 1.25, "cached_input": 0.125, "output": 10},
  "gpt-5-mini*": {"input": 0.25, "output": 2},
  "local/*-instruct": {"input": 0, "output": 0}}})";

TEST(PricesTest, ComputesCosts) {
  const Result<Prices> prices = Prices::Parse(kPriceFile);
  ASSERT_TRUE(prices.ok()) << prices.status().ToString();
  const auto dollars = [&prices](std::string_view model, const Usage& usage) {
    const Price* price = prices->Find(model);
    return price != nullptr ? Dollars(*price, usage) : -1;
  };
  EXPECT_DOUBLE_EQ(dollars("gpt-5-2025-08-07", {1'000'000, 400'000, 100'000}),
                   0.6 * 1.25 + 0.4 * 0.125 + 1.0);
  EXPECT_DOUBLE_EQ(dollars("gpt-5", {1'000'000, std::nullopt, 0}), 1.25);
  EXPECT_DOUBLE_EQ(dollars("gpt-5", {1000, 4000, 0}), 0.005) << "the dearer reading";
  // The longer pattern wins; cached input costs the input price by default.
  EXPECT_DOUBLE_EQ(dollars("gpt-5-mini", {1'000'000, 1'000'000, 1'000'000}), 2.25);
  EXPECT_EQ(dollars("local/llama-instruct", {5, 0, 5}), 0);
}

TEST(PricesTest, UnknownPriceIsNotZero) {
  const Result<Prices> prices = Prices::Parse(kPriceFile);
  ASSERT_TRUE(prices.ok());
  for (const char* model : {"claude", "", "local/llama"}) {
    EXPECT_EQ(prices->Find(model), nullptr) << model;
  }
  EXPECT_EQ(Prices().Find("gpt-5"), nullptr);
}

TEST(PricesTest, AreFoundByModelAndByProvider) {
  const Prices prices = Prices::Parse(R"({"models": {
      "coder-*": {"input": 2, "output": 10},
      "mailbox:*": {"input": 1, "output": 1}}})")
                            .value();
  const auto pattern = [&prices](std::string_view provider, std::string_view model) {
    const Price* price = prices.Find(provider, model);
    return price != nullptr ? price->pattern : "none";
  };
  EXPECT_EQ(pattern("openai:other", "coder-7"), "coder-*");
  EXPECT_EQ(pattern("mailbox:/tmp/x", "coder-7"), "coder-*");
  EXPECT_EQ(pattern("openai:coder-1", "gateway/unknown"), "coder-*");
  EXPECT_EQ(pattern("openai:coder-1", ""), "coder-*");
  EXPECT_EQ(pattern("mailbox:/tmp/x", ""), "mailbox:*");
  EXPECT_EQ(pattern("openai:x", "y"), "none");
  EXPECT_EQ(ModelOf("openai:gpt-5"), "gpt-5");
  EXPECT_EQ(ModelOf("plain"), "plain");
}

TEST(PricesTest, NamesTheBadField) {
  const std::pair<const char*, const char*> faults[] = {
      {"", "JSON"},
      {"{}", "models"},
      {R"({"models": []})", "models"},
      {R"({"models": {}, "currency": "EUR"})", "nothing else"},
      {R"({"models": {"a": 1}})", "a: expected an object"},
      {R"({"models": {"a": {"input": 1}}})", "output is missing"},
      {R"({"models": {"a": {"output": 1}}})", "input is missing"},
      {R"({"models": {"a": {"input": "1", "output": 1}}})", "a.input"},
      {R"({"models": {"a": {"input": -1, "output": 1}}})", "a.input"},
      {R"({"models": {"a": {"input": 1e999, "output": 1}}})", "JSON"},
      {R"({"models": {"a": {"input": 1, "outptu": 1}}})", "outptu"},
      {R"({"models": {"a": {"input": 1, "output": 1}, "a": {}}})", "duplicate"}};
  for (const auto& [text, word] : faults) {
    const Result<Prices> prices = Prices::Parse(text);
    ASSERT_EQ(prices.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(prices.status().message().find(word), std::string::npos)
        << prices.status().ToString();
  }
}

TEST(PricesTest, LoadsAFile) {
  Result<TempDir> dir = TempDir::Create("prices_test");
  ASSERT_TRUE(dir.ok());
  const std::string path = dir->path() + "/prices.json";
  EXPECT_EQ(Prices::Load(path).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(WriteFileAtomic(path, kPriceFile).ok());
  const Result<Prices> prices = Prices::Load(path);
  ASSERT_TRUE(prices.ok());
  ASSERT_NE(prices->Find("gpt-5"), nullptr);
  EXPECT_EQ(prices->Find("gpt-5")->pattern, "gpt-5*");
  EXPECT_EQ(prices->name(), "the price file " + path);
  ASSERT_TRUE(WriteFileAtomic(path, "{").ok());
  EXPECT_NE(Prices::Load(path).status().message().find(path), std::string::npos);
}

TEST(PricesTest, HostilePatternsTakeLittleTime) {
  const std::string stars = std::string(2000, '*') + "b";
  const Result<Prices> prices =
      Prices::Parse(R"({"models": {")" + stars + R"(": {"input": 1, "output": 1}}})");
  ASSERT_TRUE(prices.ok());
  EXPECT_EQ(prices->Find(std::string(5000, 'a')), nullptr);
  EXPECT_NE(prices->Find(std::string(5000, 'a') + "b"), nullptr);
}

}  // namespace
}  // namespace cudaforge
