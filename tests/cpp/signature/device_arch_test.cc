#include "signature/device_arch.h"

#include <gtest/gtest.h>

namespace cudaforge {
namespace {

TEST(DeviceArch, FactsLeaveOutUnknownProperties) {
  const DeviceArch arch = {.target = "cuda:sm_90a", .name = "a device", .multiprocessors = 132};
  EXPECT_EQ(arch.Facts(), (Json{{"name", "a device"}, {"multiprocessors", 132}}));
  EXPECT_EQ(DeviceArch{}.Facts(), Json::object());
}

}  // namespace
}  // namespace cudaforge
