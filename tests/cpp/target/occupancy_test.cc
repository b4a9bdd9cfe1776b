#include "target/cuda/occupancy.h"

#include <gtest/gtest.h>

namespace cudaforge {
namespace {

constexpr MultiprocessorLimits kHopper = {9, 32, 2048, 32, 65536, 65536, 228 << 10, 1 << 10};
constexpr MultiprocessorLimits kAda = {8, 32, 1536, 24, 65536, 65536, 100 << 10, 1 << 10};

// The numbers are those of NVIDIA's cuda_occupancy.h.
TEST(Occupancy, EachResourceHasItsLimit) {
  const BlockLimits limits = LimitsOfBlocks(kHopper, {256, 128, 64 << 10});
  EXPECT_EQ(limits.warps, 8);
  EXPECT_EQ(limits.blocks, 32);
  EXPECT_EQ(limits.registers, 2);
  EXPECT_EQ(limits.shared, 3);
}

TEST(Occupancy, PartsOfUnitsCountAsWhole) {
  // 33 registers of 32 threads: 1056, allocated as 1280; 12 warps a quarter.
  const BlockLimits limits = LimitsOfBlocks(kAda, {96, 33, 1});
  EXPECT_EQ(limits.warps, 16);
  EXPECT_EQ(limits.blocks, 24);
  EXPECT_EQ(limits.registers, 16);
  EXPECT_EQ(limits.shared, 88);
  EXPECT_EQ(LimitsOfBlocks(kAda, {33, 1, 0}).warps, 24);
}

TEST(Occupancy, UnusedResourcesDoNotLimit) {
  MultiprocessorLimits old = kAda;
  old.capability_major = 7;
  old.reserved_shared_bytes = 0;
  const BlockLimits limits = LimitsOfBlocks(old, {128, 0, 0});
  EXPECT_EQ(limits.registers, BlockLimits::kNoLimit);
  EXPECT_EQ(limits.shared, BlockLimits::kNoLimit);
}

TEST(Occupancy, TooLargeBlockGivesZero) {
  EXPECT_EQ(LimitsOfBlocks(kHopper, {1024, 128, 0}).registers, 0);
  EXPECT_EQ(LimitsOfBlocks(kHopper, {1024, 64, 0}).registers, 1);
  EXPECT_EQ(LimitsOfBlocks(kHopper, {32, 32, 300 << 10}).shared, 0);
}

}  // namespace
}  // namespace cudaforge
