#include "worker/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace cudaforge {
namespace {

constexpr RangeSplit kSplits[] = {RangeSplit::kServed, RangeSplit::kWhole, RangeSplit::kItems,
                                  RangeSplit::kRandom};

TEST(CutRange, EveryItemIsInOnePart) {
  for (const RangeSplit split : kSplits) {
    for (const int64_t range : {1, 2, 3, 7, 64, 1000, 65536, 65537, 1 << 20, (1 << 24) + 3}) {
      for (const uint64_t seed : {1, 2, 3}) {
        std::vector<RangePart> parts = CutRange(split, range, 5, 3, seed);
        EXPECT_LE(parts.size(), 65536u);
        std::sort(parts.begin(), parts.end(),
                  [](const RangePart& a, const RangePart& b) { return a.begin < b.begin; });
        int64_t next = 0;
        for (const RangePart& part : parts) {
          ASSERT_EQ(part.begin, next) << SplitName(split) << " of " << range;
          ASSERT_GT(part.end, part.begin);
          next = part.end;
        }
        EXPECT_EQ(next, range);
      }
    }
    EXPECT_TRUE(CutRange(split, 0, 1, 2, 1).empty());
    EXPECT_EQ(ParseSplit(SplitName(split)).value(), split);
  }
  EXPECT_FALSE(ParseSplit("all").ok());
}

TEST(CutRange, EachKindIsWhatItIsCalled) {
  EXPECT_EQ(CutRange(RangeSplit::kWhole, 1000, 1, 8, 1).size(), 1u);
  EXPECT_EQ(CutRange(RangeSplit::kServed, 1000, 1, 8, 1).size(), 8u);
  EXPECT_EQ(CutRange(RangeSplit::kServed, 1000, 400, 8, 1).size(), 3u);
  EXPECT_EQ(CutRange(RangeSplit::kItems, 1000, 400, 8, 1).size(), 1000u);
  const auto single = [](const RangePart& part) { return part.end - part.begin == 1; };
  const auto items = CutRange(RangeSplit::kItems, 1 << 24, 1, 8, 1);
  EXPECT_GT(std::count_if(items.begin(), items.end(), single), 4000);
  const auto parts = CutRange(RangeSplit::kRandom, 100000, 50000, 4, 9);
  EXPECT_GT(parts.size(), 1u);
  EXPECT_TRUE(std::all_of(parts.begin(), parts.end(), [](const RangePart& part) {
    return part.begin == 0 || part.begin % 2 == 1;
  }));
  const auto other = CutRange(RangeSplit::kRandom, 100000, 50000, 4, 10);
  EXPECT_NE(parts.front().begin, other.front().begin);
}

}  // namespace
}  // namespace cudaforge
