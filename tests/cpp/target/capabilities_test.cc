#include "target/capabilities.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/file.h"
#include "target/cuda/driver_api.h"
#include "target/cuda/ptx_linker.h"
#include "target/target.h"

namespace cudaforge {
namespace {

TEST(Capabilities, EachIsOkOrHasAdvice) {
  const std::vector<Capability> all = Capabilities();
  ASSERT_EQ(all.size(), 8u);
  for (const Capability& capability : all) {
    EXPECT_FALSE(capability.name.empty());
    EXPECT_FALSE(capability.detail.empty()) << capability.name;
    EXPECT_EQ(capability.ok(), capability.advice.empty()) << capability.name;
  }
}

TEST(Capabilities, HostCompiler) {
  const Capability found = HostCompilerCapability();
  EXPECT_TRUE(found.ok()) << found.detail;
  for (const char* absent : {"no-such-compiler-here", "/nonexistent/g++"}) {
    const Capability missing = HostCompilerCapability(absent);
    EXPECT_EQ(missing.state, CapabilityState::kMissing) << missing.detail;
    EXPECT_NE(missing.advice.find("CUDAFORGE_CXX"), std::string::npos);
    EXPECT_EQ(missing.detail.find("CUDAFORGE_CXX"), std::string::npos) << missing.detail;
  }
  for (const char* broken : {"false", "/etc/passwd"}) {
    EXPECT_EQ(HostCompilerCapability(broken).state, CapabilityState::kBroken) << broken;
  }
}

TEST(Capabilities, CpuCounters) {
  const auto with = [](const std::function<Status(uint64_t)>& refusal) {
    return CpuCountersCapability([&](uint64_t event, pid_t) -> Result<UniqueFd> {
      const Status status = refusal(event);
      if (!status.ok()) return status;
      return UniqueFd();
    });
  };
  EXPECT_EQ(with([](uint64_t) { return Status::Ok(); }).detail,
            "cycles, instructions, cache_references, cache_misses, branch_misses");
  const Capability some = with([](uint64_t event) {
    return event == 0 ? Status::Ok() : Status::Unsupported("the processor shows none");
  });
  EXPECT_TRUE(some.ok());
  EXPECT_EQ(some.detail, "cycles");
  const Capability refused = with([](uint64_t) { return Status::Unavailable("not permitted"); });
  EXPECT_EQ(refused.state, CapabilityState::kBroken);
  EXPECT_NE(refused.advice.find("perf_event_paranoid"), std::string::npos);
  const Capability none = with([](uint64_t) { return Status::Unsupported("none"); });
  EXPECT_EQ(none.state, CapabilityState::kMissing);
  EXPECT_EQ(none.advice.find("perf_event_paranoid"), std::string::npos);
}

TEST(Capabilities, UnloadableLibraryIsBroken) {
  const TempDir folder = TempDir::Create("cudaforge-test-").value();
  ASSERT_TRUE(MakeDirs(folder.path() + "/lib").ok());
  const auto capability = [&] { return CuptiCapability({folder.path()}); };
  const bool elsewhere = capability().ok();
  if (!elsewhere) {
    EXPECT_EQ(capability().state, CapabilityState::kMissing);
  }
  ASSERT_TRUE(WriteFileAtomic(folder.path() + "/lib/libcupti.so.13", "no library").ok());
  const Capability found = capability();
  EXPECT_EQ(found.state, elsewhere ? CapabilityState::kOk : CapabilityState::kBroken);
  EXPECT_EQ(found.detail.find("pip install"), std::string::npos) << found.detail;
}

TEST(Capabilities, IsolationIsOkOnAnOrdinaryKernel) {
  const Capability found = IsolationCapability();
  EXPECT_EQ(found.name, "isolation");
  EXPECT_TRUE(found.ok()) << found.detail;
}

TEST(Capabilities, NvJitLinkEqualsTheLinkers) {
  const Capability found = NvJitLinkCapability();
  EXPECT_EQ(found.name, "nvjitlink");
  const auto linker = PtxLinker::Create();
  EXPECT_EQ(found.ok(), linker.ok());
  if (linker.ok()) {
    EXPECT_NE(found.detail.find(linker->path()), std::string::npos) << found.detail;
  }
  EXPECT_EQ(found.advice.find("nvidia-nvjitlink") != std::string::npos, !linker.ok());
}

TEST(Capabilities, DriverIsOkOrHasAdvice) {
  const bool there = cu::DriverApi::Get().ok();
  EXPECT_EQ(DriverCapability().ok(), there);
  EXPECT_EQ(GpuCapability().ok(), there);
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
