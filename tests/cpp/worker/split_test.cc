#include "worker/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace cudaforge {
namespace {

constexpr RangeSplit kSplits[] = {RangeSplit::kServed, RangeSplit::kWhole, RangeSplit::kItems,
                                  RangeSplit::kRandom, RangeSplit::kApart};

TEST(CutRange, EveryItemIsInOnePart) {
  for (const RangeSplit split : kSplits) {
    for (const int64_t range : {1, 2, 3, 7, 64, 1000, 65536, 65537, 1 << 20, (1 << 24) + 3}) {
      for (uint64_t seed = 1; seed < 30; ++seed) {
        if (range > 1 << 16 && seed > 6) break;
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

TEST(CutRange, SplitsMatchTheirNames) {
  EXPECT_EQ(CutRange(RangeSplit::kWhole, 1000, 1, 8, 1).size(), 1u);
  EXPECT_EQ(CutRange(RangeSplit::kServed, 1000, 1, 8, 1).size(), 8u);
  EXPECT_EQ(CutRange(RangeSplit::kServed, 1000, 400, 8, 1).size(), 3u);
  EXPECT_EQ(CutRange(RangeSplit::kItems, 1000, 400, 8, 1).size(), 1000u);
  const auto single = [](const RangePart& part) { return part.end - part.begin == 1; };
  const auto items = CutRange(RangeSplit::kItems, 1 << 24, 1, 8, 1);
  EXPECT_GT(std::count_if(items.begin(), items.end(), single), 4000);
  EXPECT_EQ(CutRange(RangeSplit::kApart, 1000, 400, 1024, 1).size(), 1000u);
  const auto apart = CutRange(RangeSplit::kApart, int64_t{1} << 62, 1, 16, 1);
  EXPECT_GT(apart.size(), 8u);
  EXPECT_LE(apart.size(), 16u);
}

// Possible assumptions of a kernel about a part's begin and length.
TEST(CutRange, RandomPartsCoverEveryKind) {
  int odd = 0, even = 0, eights = 0, tiles = 0, thirds = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto parts = CutRange(RangeSplit::kRandom, 960, 1, 2, seed);
    const auto all = [&](const auto& holds) {
      return parts.size() > 2 && std::all_of(parts.begin(), parts.end(), holds);
    };
    odd += all([](const RangePart& p) { return p.begin == 0 || p.begin % 2 == 1; });
    even += all([](const RangePart& p) { return p.begin % 2 == 0; });
    eights += all([](const RangePart& p) { return p.begin % 8 == 0 && p.end % 8 == 0; });
    tiles += all([](const RangePart& p) { return p.begin % 64 == 0; });
    thirds += all([](const RangePart& p) { return p.end - p.begin == 320; });
  }
  EXPECT_GT(odd, 5);
  EXPECT_GT(even, eights);
  EXPECT_GT(eights, tiles);
  EXPECT_GT(tiles, 5);
  EXPECT_GT(thirds, 0);
}

}  // namespace
}  // namespace cudaforge
