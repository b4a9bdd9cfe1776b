#include "target/capabilities.h"

#include <gtest/gtest.h>

#include "target/cuda/driver_api.h"
#include "target/cuda/ptx_linker.h"
#include "target/target.h"

namespace cudaforge {
namespace {

TEST(Capabilities, EachIsOkOrSaysWhatToDo) {
  const std::vector<Capability> all = Capabilities();
  ASSERT_EQ(all.size(), 6u);
  for (const Capability& capability : all) {
    EXPECT_FALSE(capability.name.empty());
    EXPECT_FALSE(capability.detail.empty()) << capability.name;
    EXPECT_EQ(capability.ok, capability.advice.empty()) << capability.name;
  }
}

TEST(Capabilities, HostCompiler) {
  const Capability found = HostCompilerCapability();
  EXPECT_TRUE(found.ok) << found.detail;
  const Capability missing = HostCompilerCapability("no-such-compiler-here");
  EXPECT_FALSE(missing.ok);
  EXPECT_NE(missing.advice.find("CUDAFORGE_CXX"), std::string::npos);
  EXPECT_FALSE(HostCompilerCapability("false").ok);
}

TEST(Capabilities, NvJitLinkIsThatOfTheLinker) {
  const Capability found = NvJitLinkCapability();
  EXPECT_EQ(found.name, "nvjitlink");
  const auto linker = PtxLinker::Create();
  EXPECT_EQ(found.ok, linker.ok());
  const std::string& expected = linker.ok() ? linker->path() : linker.status().message();
  EXPECT_NE(found.detail.find(expected), std::string::npos) << found.detail;
  EXPECT_EQ(found.advice.find("nvidia-nvjitlink") != std::string::npos, !linker.ok());
}

TEST(Capabilities, ADriverIsSaidToBeThereOrMissedWithAdvice) {
  const bool there = cu::DriverApi::Get().ok();
  EXPECT_EQ(DriverCapability().ok, there);
  EXPECT_EQ(GpuCapability().ok, there);
  const auto target = MakeCudaTarget(0);
  ASSERT_EQ(target.ok(), there) << target.status().ToString();
  if (there) return;
  EXPECT_EQ(target.status().code(), StatusCode::kUnavailable);
  const std::string& message = target.status().message();
  EXPECT_TRUE(message.find("install the driver") != std::string::npos ||
              message.find("CUDA_VISIBLE_DEVICES") != std::string::npos)
      << message;
}

}  // namespace
}  // namespace cudaforge
