#include "generators/tiles/units.h"

#include <gtest/gtest.h>

namespace cudaforge::tiles {
namespace {

Contraction Of(int64_t m, int64_t n, int64_t k, int64_t batch = 1, int64_t stride_a = 0) {
  Contraction c;
  c.batch = batch, c.m = m, c.n = n, c.k = k;
  c.a.batch = stride_a;
  return c;
}

TEST(Units, EveryTileIsWholeWithoutParts) {
  const Tiles tiles(Of(300, 129, 200), {});
  EXPECT_EQ(tiles.m, 3);
  EXPECT_EQ(tiles.n, 2);
  EXPECT_EQ(tiles.steps, 4);
  EXPECT_EQ(tiles.whole(1, 132), 6);
  EXPECT_EQ(tiles.units(1, 132), 6);
}

TEST(Units, TilesThatFillNoWaveAreInParts) {
  const Tiles tiles(Of(4096, 5504, 2048), {});  // 32 x 43 = 1,376 tiles: ten waves of 132, and 56
  EXPECT_EQ(tiles.whole(2, 132), 1320);
  EXPECT_EQ(tiles.units(2, 132), 1320 + 112);
  EXPECT_EQ(tiles.PartialBytes(2, 132), 112 * 128 * 128 * 4);
  EXPECT_LT(tiles.Time(2, 132), tiles.Time(1, 132));
}

TEST(Units, AMatrixThatABatchSharesIsOne) {
  EXPECT_EQ(Tiles(Of(128, 128, 64, 7, 0), {}).matrices_a, 1);
  EXPECT_EQ(Tiles(Of(128, 128, 64, 7, 128 * 64), {}).matrices_a, 7);
  EXPECT_EQ(Tiles(Of(128, 128, 64, 7), {}).all, 7);
}

TEST(Units, PartCountsAreGuessesNearTheBestAndOne) {
  for (const Contraction& c : {Of(256, 256, 524288), Of(4096, 5504, 2048), Of(8192, 8192, 8192),
                               Of(128, 128, 64), Of(1024, 1024, 1024)}) {
    const Tiles tiles(c, {});
    const std::vector<int64_t> counts = tiles.PartCounts(132, 3);
    ASSERT_FALSE(counts.empty());
    EXPECT_LE(counts.size(), 4u);
    EXPECT_EQ(std::count(counts.begin(), counts.end(), 1), 1);
    const int64_t best = tiles.Time(counts.front(), 132);
    for (int64_t parts : counts) {
      EXPECT_GE(tiles.Time(parts, 132), best);
      EXPECT_TRUE(parts == 1 || tiles.Time(parts, 132) <= best + best / 10) << parts;
    }
  }
  EXPECT_GT(Tiles(Of(256, 256, 524288), {}).PartCounts(132, 3).front(), 30);
  EXPECT_EQ(Tiles(Of(128, 128, 64), {}).PartCounts(132, 3), std::vector<int64_t>{1});
}

TEST(Units, SizesAreChecked) {
  EXPECT_TRUE(CheckSizes(Of(4096, 4096, 4096), {}, 256).ok());
  EXPECT_FALSE(CheckSizes(Of(63, 4096, 4096), {}, 256).ok());
  EXPECT_FALSE(CheckSizes(Of(128, 128, 64), {}, 256).ok()) << "a microsecond of work";
  EXPECT_FALSE(CheckSizes(Of(int64_t{1} << 24, int64_t{1} << 24, 256), {}, 256).ok());
  EXPECT_FALSE(CheckSizes(Of(128, 128, 256, int64_t{1} << 24), {}, 256).ok());
  EXPECT_FALSE(CheckSizes(Of(4096, 4096, 192), {}, 256).ok()) << "shorter sums";
}

}  // namespace
}  // namespace cudaforge::tiles
