#include "target/cuda/metric_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "base/file.h"
#include "base/text.h"
#include "target/cuda/driver_api.h"
#include "target/cuda/search_paths.h"
#include "target/target.h"

namespace cudaforge {
namespace {

// Null without CUPTI.
const cupti::CuptiApi* Cupti() {
  static const auto* const api = new Result<cupti::CuptiApi>(cupti::CuptiApi::Open({}));
  return api->ok() ? &api->value() : nullptr;
}

// CUPTI of CUDA 13.2 recurses infinitely without a driver, in every function.
bool NeedsDriver() {
  for (const std::string& folder : CudaIncludeDirs({})) {
    const auto header = ReadFile(folder + "/cupti_version.h");
    const std::string_view define = "#define CUPTI_API_VERSION ";
    const size_t at = header.ok() ? header->find(define) : std::string::npos;
    if (at == std::string::npos) continue;
    return ParseInteger<int>(header->substr(at + define.size(), 6)).value_or(0) > 130001;
  }
  return false;
}

#define NEEDS_CUPTI()                                                             \
  if (Cupti() == nullptr) GTEST_SKIP() << "needs CUPTI: set CUDAFORGE_CUDA_PATH"; \
  if (NeedsDriver() && !cu::DriverApi::Get().ok()) GTEST_SKIP() << "needs a GPU"

struct ChipPasses {
  const char* chip;
  size_t passes[kMaxProfileTier];  // of tiers 1 to 4
};

class MetricTiers : public testing::TestWithParam<ChipPasses> {};

// Fixes the passes of each tier, so that a new metric cannot slow down the tiers of every round
// unnoticed.
TEST_P(MetricTiers, EveryNameIsAcceptedWithTheExpectedPasses) {
  NEEDS_CUPTI();
  const ChipPasses& expected = GetParam();
  for (int tier = 1; tier <= kMaxProfileTier; ++tier) {
    const auto metrics = TierMetrics(expected.chip, tier);
    const auto schedule = MetricSchedule::Make(*Cupti(), expected.chip, {}, metrics);
    ASSERT_TRUE(schedule.ok()) << schedule.status().ToString();
    EXPECT_EQ(schedule->refused(), std::vector<std::string>{}) << "tier " << tier;
    EXPECT_EQ(schedule->metrics(), metrics);
    EXPECT_EQ(schedule->passes(), expected.passes[tier - 1]) << "tier " << tier;
    EXPECT_FALSE(schedule->config().empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Chips, MetricTiers,
                         testing::Values(ChipPasses{"GA100", {1, 2, 4, 9}},
                                         ChipPasses{"GH100", {1, 2, 4, 13}},
                                         ChipPasses{"GB100", {1, 2, 4, 12}},
                                         ChipPasses{"AD102", {1, 2, 4, 10}},
                                         ChipPasses{"GB202", {1, 2, 5, 12}}),
                         [](const auto& info) { return std::string(info.param.chip); });

TEST(MetricTiersOfAnyChip, EachContainsThePreviousTier) {
  EXPECT_TRUE(TierMetrics("GH100", 0).empty());
  for (const char* chip : {"GH100", "GB202", "a chip of the future"}) {
    for (int tier = 1; tier <= kMaxProfileTier; ++tier) {
      const auto lower = TierMetrics(chip, tier - 1);
      const auto upper = TierMetrics(chip, tier);
      ASSERT_GT(upper.size(), lower.size());
      EXPECT_TRUE(std::equal(lower.begin(), lower.end(), upper.begin()));
    }
  }
}

// Integrated chips have no memory of their own; other metrics work.
TEST(MetricTiersOfAnyChip, OnlyMemoryMetricsOfIntegratedChipsAreMissing) {
  NEEDS_CUPTI();
  const auto chips = CuptiChips(*Cupti());
  ASSERT_TRUE(chips.ok()) << chips.status().ToString();
  EXPECT_NE(std::find(chips->begin(), chips->end(), "GH100"), chips->end());
  size_t complete = 0;
  for (const std::string& chip : *chips) {
    const auto metrics = TierMetrics(chip, 1);
    const auto schedule = MetricSchedule::Make(*Cupti(), chip, {}, metrics);
    if (!schedule.ok()) {  // listed, but not supported
      EXPECT_EQ(schedule.status().code(), StatusCode::kUnavailable) << chip;
      continue;
    }
    complete += schedule->refused().empty() ? 1 : 0;
    for (const std::string& name : schedule->refused()) {
      EXPECT_TRUE(name.starts_with("dram__")) << chip << ": " << name;
    }
  }
  EXPECT_GT(complete, chips->size() * 3 / 4);
}

TEST(MetricScheduleOfAChip, LeavesOutUnsupportedMetrics) {
  NEEDS_CUPTI();
  const auto schedule = MetricSchedule::Make(
      *Cupti(), "GH100", {},
      {"gpu__time_duration.sum", "no__such_metric.sum", "dram__bytes_read.sum"});
  ASSERT_TRUE(schedule.ok()) << schedule.status().ToString();
  EXPECT_EQ(schedule->metrics(),
            (std::vector<std::string>{"gpu__time_duration.sum", "dram__bytes_read.sum"}));
  EXPECT_EQ(schedule->refused(), std::vector<std::string>{"no__such_metric.sum"});
  EXPECT_EQ(schedule->passes(), 1u);
  EXPECT_EQ(schedule->names().size(), 2u);
  EXPECT_EQ(MetricSchedule::Make(*Cupti(), "GH100", {}, {"no__such_metric.sum"}).status().code(),
            StatusCode::kUnavailable);
}

TEST(MetricScheduleOfAChip, UnknownChipIsRefusedByName) {
  NEEDS_CUPTI();
  const auto schedule = MetricSchedule::Make(*Cupti(), "XX999", {}, TierMetrics("XX999", 1));
  EXPECT_EQ(schedule.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(schedule.status().message().find("XX999"), std::string::npos);
}

}  // namespace
}  // namespace cudaforge
