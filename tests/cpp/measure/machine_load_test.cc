#include "measure/machine_load.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/file.h"
#include "target/cpu/cpu_info.h"

namespace cudaforge {
namespace {

constexpr const char* kStat =
    "cpu  400 20 60 5000 40 2 8 10 7 0\n"
    "cpu0 100 10 20 1000 10 1 4 5 7 0\n"
    "cpu1 300 10 40 4000 30 1 4 5 0 0\n"
    "intr 1 2 3\n";

TEST(MachineLoad, TicksOfTheAllowedProcessors) {
  const auto both = ParseProcessorTicks(kStat, std::vector{0, 1, 2});
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->all, 5540);
  EXPECT_EQ(both->idle, 5040);
  const auto second = ParseProcessorTicks(kStat, std::vector{1});
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->all, 4390);
  EXPECT_EQ(second->idle, 4030);
  EXPECT_FALSE(ParseProcessorTicks(kStat, std::vector{2}).has_value());
  EXPECT_FALSE(ParseProcessorTicks("cpu\ncpux 1 2\n", std::vector{0}).has_value());
}

TEST(MachineLoad, OthersDisturbWithoutIdleTime) {
  const ProcessorTicks from{1000, 500, 100};
  // 200 ticks, 100 of them by this process.
  EXPECT_TRUE(WasDisturbed(from, {1200, 500, 200}));
  EXPECT_TRUE(WasDisturbed(from, {1200, 520, 260}));   // 20 of others
  EXPECT_FALSE(WasDisturbed(from, {1200, 500, 300}));  // all its own
  EXPECT_FALSE(WasDisturbed(from, {1200, 500, 292}));  // 8 of others: a twentieth is 10
  EXPECT_FALSE(WasDisturbed(from, {1200, 600, 150}));  // half is idle
  EXPECT_FALSE(WasDisturbed(from, {1010, 500, 100}));  // too short
}

TEST(MachineLoad, ReadsThisMachine) {
  const auto ticks = ParseProcessorTicks(ReadFile("/proc/stat").value(), AllowedCpus());
  ASSERT_TRUE(ticks.has_value());
  EXPECT_GT(ticks->all, ticks->idle);
  EXPECT_GT(ticks->idle, 0);
}

}  // namespace
}  // namespace cudaforge
