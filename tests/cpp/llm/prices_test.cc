#include "llm/prices.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace cudaforge {
namespace {

constexpr std::string_view kPriceFile = R"({"models": {
  "gpt-5*": {"input": 1.25, "cached_input": 0.125, "output": 10},
  "gpt-5-mini*": {"input": 0.25, "output": 2},
  "local/*-instruct": {"input": 0, "output": 0}}})";

TEST(PricesTest, AddsUpWhatWasUsed) {
  const Result<Prices> prices = Prices::Parse(kPriceFile);
  ASSERT_TRUE(prices.ok()) << prices.status().ToString();
  EXPECT_DOUBLE_EQ(*prices->Dollars("gpt-5-2025-08-07", {1'000'000, 400'000, 100'000}),
                   0.6 * 1.25 + 0.4 * 0.125 + 1.0);
  EXPECT_DOUBLE_EQ(*prices->Dollars("gpt-5", {1'000'000, std::nullopt, 0}), 1.25);
  // The longer pattern, and cached input at the price of input where the file says no other.
  EXPECT_DOUBLE_EQ(*prices->Dollars("gpt-5-mini", {1'000'000, 1'000'000, 1'000'000}), 2.25);
  EXPECT_EQ(prices->Dollars("local/llama-instruct", {5, 0, 5}), 0);
}

TEST(PricesTest, WhatIsNotKnownIsNotFree) {
  const Result<Prices> prices = Prices::Parse(kPriceFile);
  ASSERT_TRUE(prices.ok());
  EXPECT_EQ(prices->Dollars("claude", {1, 0, 1}), std::nullopt);
  EXPECT_EQ(prices->Dollars("", {1, 0, 1}), std::nullopt);
  EXPECT_EQ(prices->Dollars("local/llama", {1, 0, 1}), std::nullopt);
  EXPECT_EQ(prices->Dollars("gpt-5", {}), std::nullopt);
  EXPECT_EQ(prices->Dollars("gpt-5", {1, 0, std::nullopt}), std::nullopt);
  EXPECT_EQ(prices->Dollars("gpt-5", {std::nullopt, 0, 1}), std::nullopt);
  EXPECT_EQ(prices->Dollars("gpt-5", {1, 2, 1}), std::nullopt);  // more cached than there was
  EXPECT_EQ(Prices().Dollars("gpt-5", {1, 0, 1}), std::nullopt);
}

TEST(PricesTest, SaysWhatIsWrong) {
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
