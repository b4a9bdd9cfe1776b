#include "base/integers.h"

#include <gtest/gtest.h>

namespace cudaforge {
namespace {

TEST(Integers, PowersOfTwo) {
  for (int64_t power : {int64_t{1}, int64_t{2}, int64_t{64}, int64_t{1} << 62}) {
    EXPECT_TRUE(IsPowerOfTwo(power)) << power;
  }
  for (int64_t other : {int64_t{0}, int64_t{3}, int64_t{96}, int64_t{-2}, INT64_MIN}) {
    EXPECT_FALSE(IsPowerOfTwo(other)) << other;
  }
}

TEST(Integers, Rounding) {
  EXPECT_EQ(CeilDiv(0, 8), 0);
  EXPECT_EQ(CeilDiv(8, 8), 1);
  EXPECT_EQ(CeilDiv(9, 8), 2);
  EXPECT_EQ(RoundUp(0, 48), 0);
  EXPECT_EQ(RoundUp(48, 48), 48);
  EXPECT_EQ(RoundUp(49, 48), 96);
  EXPECT_EQ(RoundUp((int64_t{1} << 40) + 1, 4096), (int64_t{1} << 40) + 4096);
}

}  // namespace
}  // namespace cudaforge
