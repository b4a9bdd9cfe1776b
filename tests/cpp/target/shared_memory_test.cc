#include "target/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/file.h"
#include "target/cpu/cpu_info.h"
#include "target/cuda/driver_api.h"
#include "target/target.h"
#include "tests/cpp/forked.h"

namespace cudaforge {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Returns true if a child process that calls `touch` dies by a signal.
bool Faults(const std::function<void()>& touch) {
  return InForkedChild([&] {
           signal(SIGSEGV, SIG_DFL);
           touch();
           return 0;
         }) == -1;
}

class SharedMemoryOfCpu : public ::testing::Test {
 protected:
  char* Shared() { return static_cast<char*>(memory_.data()); }
  DeviceBuffer Map(bool writable) {
    const UniqueFd fd = memory_.Export(writable).value();
    return target_->Map(fd.get(), memory_.bytes(), writable, 0).value();
  }

  std::unique_ptr<Target> target_ = MakeCpuTarget().value();
  SharedMemory memory_ = target_->Share(3 * target_->granule() - 1).value();
};

TEST_F(SharedMemoryOfCpu, ComesInWholeGranules) {
  EXPECT_GE(target_->granule(), 1);
  EXPECT_EQ(memory_.bytes(), 3 * target_->granule());
  EXPECT_EQ(target_->Share(0)->bytes(), target_->granule());
  EXPECT_EQ(target_->Share(memory_.bytes())->bytes(), memory_.bytes());
}

TEST_F(SharedMemoryOfCpu, EveryMappingSeesTheSameBytes) {
  DeviceBuffer one = Map(/*writable=*/true);
  const DeviceBuffer two = Map(/*writable=*/false);
  EXPECT_NE(one.data(), two.data());
  EXPECT_EQ(one.bytes(), memory_.bytes());
  Shared()[5] = 'o';
  static_cast<char*>(one.data())[memory_.bytes() - 1] = 'm';
  EXPECT_EQ(static_cast<const char*>(two.data())[5], 'o');
  EXPECT_EQ(static_cast<const char*>(two.data())[memory_.bytes() - 1], 'm');
  EXPECT_EQ(Shared()[memory_.bytes() - 1], 'm');
}

TEST_F(SharedMemoryOfCpu, AnotherProcessWritesIt) {
  const UniqueFd fd = memory_.Export(/*writable=*/true).value();
  EXPECT_EQ(InForkedChild([&] {
              const auto mapped = target_->Map(fd.get(), memory_.bytes(), /*writable=*/true, 0);
              if (!mapped.ok()) return 1;
              std::memcpy(mapped->data(), "child", 5);
              return 0;
            }),
            0);
  EXPECT_EQ(std::string(Shared(), 5), "child");
}

TEST_F(SharedMemoryOfCpu, ReadOnlyMappingStaysReadOnly) {
  const UniqueFd fd = memory_.Export(/*writable=*/false).value();
  EXPECT_FALSE(target_->Map(fd.get(), memory_.bytes(), /*writable=*/true, 0).ok());
  const DeviceBuffer mapped = Map(/*writable=*/false);
  auto* const bytes = static_cast<volatile char*>(mapped.data());
  EXPECT_FALSE(Faults([&] { (void)bytes[0]; }));
  EXPECT_TRUE(Faults([&] { bytes[0] = 1; }));
  EXPECT_NE(mprotect(mapped.data(), static_cast<size_t>(mapped.bytes()), PROT_READ | PROT_WRITE),
            0);
  EXPECT_EQ(Shared()[0], 0);
}

TEST_F(SharedMemoryOfCpu, GuardsAreOnBothSides) {
  const DeviceBuffer mapped = Map(/*writable=*/true);
  for (const void* data : {memory_.data(), mapped.data()}) {
    const auto* const bytes = static_cast<const volatile char*>(data);
    for (const int64_t at :
         {int64_t{-1}, -kMapGuardBytes, memory_.bytes(), memory_.bytes() + kMapGuardBytes - 1}) {
      EXPECT_TRUE(Faults([&] { (void)bytes[at]; })) << at;
    }
    EXPECT_FALSE(Faults([&] { (void)bytes[memory_.bytes() - 1]; }));
  }
}

TEST_F(SharedMemoryOfCpu, OtherDescriptorsAreRefused) {
  EXPECT_EQ(target_->Map(-1, 4096, false, 0).status().code(), StatusCode::kCorruption);
  const UniqueFd null(open("/dev/null", O_RDONLY));
  EXPECT_EQ(target_->Map(null.get(), 4096, false, 0).status().code(), StatusCode::kCorruption);
  const UniqueFd fd = memory_.Export(false).value();
  for (const int64_t bytes : {int64_t{0}, int64_t{-1}, memory_.bytes() - 1, 2 * memory_.bytes()}) {
    EXPECT_EQ(target_->Map(fd.get(), bytes, false, 0).status().code(), StatusCode::kCorruption);
  }
}

TEST_F(SharedMemoryOfCpu, TooMuchIsNoMemory) {
  const int64_t left = target_->FreeBytes().value();
  EXPECT_GT(left, 0);
  EXPECT_EQ(target_->Share(left + 1024 * kMiB).status().code(), StatusCode::kNoMemory);
  EXPECT_EQ(target_->Share(int64_t{1} << 60).status().code(), StatusCode::kNoMemory);
}

TEST(FreeMemory, IsTheMinimumOfSystemAndCgroups) {
  const TempDir root = TempDir::Create("cudaforge-test-").value();
  const auto put = [&](const std::string& path, const std::string& text) {
    const std::string whole = root.path() + "/" + path;
    ASSERT_TRUE(MakeDirs(whole.substr(0, whole.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomic(whole, text).ok());
  };
  EXPECT_EQ(FreeMemoryBytes(root.path()).status().code(), StatusCode::kUnavailable);
  put("proc/meminfo",
      "MemTotal:       2000 kB\nMemFree:         100 kB\nMemAvailable:   1000 kB\n");
  EXPECT_EQ(*FreeMemoryBytes(root.path()), 1'024'000);
  put("proc/self/cgroup", "1:cpu:/other\n0::/outer/inner\n");
  put("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  put("sys/fs/cgroup/outer/inner/memory.current", "7\n");
  EXPECT_EQ(*FreeMemoryBytes(root.path()), 1'024'000);
  put("sys/fs/cgroup/outer/memory.max", "900000\n");
  put("sys/fs/cgroup/outer/memory.current", "600000\n");
  EXPECT_EQ(*FreeMemoryBytes(root.path()), 300'000);
  put("sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 100000\nactive_file 9\n");
  EXPECT_EQ(*FreeMemoryBytes(root.path()), 400'000);
  put("sys/fs/cgroup/memory.max", "500000\n");  // a container's own root
  put("sys/fs/cgroup/memory.current", "510000\n");
  EXPECT_EQ(*FreeMemoryBytes(root.path()), 0);
  put("proc/self/cgroup", "4:memory:/job\n0::/elsewhere\n");
  put("sys/fs/cgroup/memory.max", "max\n");
  put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000\n");
  put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "2000\n");
  EXPECT_EQ(*FreeMemoryBytes(root.path()), 3000);
}

// For faults see tests/cpp/worker: they would lose this process's context.
class GpuSharedMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cu::DriverApi::Get().ok()) GTEST_SKIP() << "needs a GPU";
    target_ = MakeCudaTarget(0).value();
  }
  std::unique_ptr<Target> target_;
};

TEST_F(GpuSharedMemory, EveryMappingSeesTheSameBytes) {
  EXPECT_EQ(target_->granule() % (64 << 10), 0);
  EXPECT_EQ(kMapGuardBytes % target_->granule(), 0);
  const SharedMemory memory = target_->Share(target_->granule() + 1).value();
  EXPECT_EQ(memory.bytes(), 2 * target_->granule());
  const UniqueFd fd = memory.Export(/*writable=*/true).value();
  const DeviceBuffer one = target_->Map(fd.get(), memory.bytes(), /*writable=*/true, 0).value();
  const DeviceBuffer two = target_->Map(fd.get(), memory.bytes(), /*writable=*/false, 0).value();
  EXPECT_NE(one.data(), two.data());
  EXPECT_NE(one.data(), memory.data());
  const std::string text = "written by the owner";
  const auto size = static_cast<int64_t>(text.size());
  char* const end = static_cast<char*>(memory.data()) + memory.bytes() - size;
  ASSERT_TRUE(target_->CopyIn(end, text.data(), size).ok());
  for (const DeviceBuffer* mapping : {&one, &two}) {
    std::string seen(text.size(), '\0');
    const char* const at = static_cast<const char*>(mapping->data()) + memory.bytes() - size;
    ASSERT_TRUE(target_->CopyOut(seen.data(), at, size).ok());
    EXPECT_EQ(seen, text);
  }
  EXPECT_FALSE(target_->poisoned());
}

TEST_F(GpuSharedMemory, IsFreedWithItsLastOwner) {
  const int64_t before = target_->FreeBytes().value();
  std::optional<SharedMemory> memory = target_->Share(256 * kMiB).value();
  std::optional<UniqueFd> fd = memory->Export(true).value();
  std::optional<DeviceBuffer> mapping = target_->Map(fd->get(), memory->bytes(), true, 0).value();
  EXPECT_LE(target_->FreeBytes().value(), before - 256 * kMiB);
  memory.reset();
  fd.reset();
  EXPECT_LE(target_->FreeBytes().value(), before - 256 * kMiB) << "still mapped";
  mapping.reset();
  EXPECT_GT(target_->FreeBytes().value(), before - 256 * kMiB);
}

TEST_F(GpuSharedMemory, ErrorsLeaveTheDeviceUsable) {
  const int64_t left = target_->FreeBytes().value();
  EXPECT_EQ(target_->Share(2 * left).status().code(), StatusCode::kNoMemory);
  EXPECT_EQ(target_->Allocate(2 * left).status().code(), StatusCode::kNoMemory);
  EXPECT_FALSE(target_->Map(-1, target_->granule(), true, 0).ok());
  const SharedMemory memory = target_->Share(1).value();
  const UniqueFd fd = memory.Export(true).value();
  EXPECT_FALSE(target_->Map(fd.get(), memory.bytes() - 1, true, 0).ok());
  EXPECT_FALSE(target_->Map(fd.get(), memory.bytes() * 2, true, 0).ok());
  EXPECT_FALSE(target_->poisoned());
  EXPECT_TRUE(target_->Map(fd.get(), memory.bytes(), true, 0).ok());
}

}  // namespace
}  // namespace cudaforge
