#include "measure/timing_lease.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

namespace cudaforge {
namespace {

// Each test has its own lock files.
class TimingLeaseTest : public testing::Test {
 protected:
  TimingLeaseTest() : folder_(*TempDir::Create("lease")) {
    if (const char* before = std::getenv("TMPDIR"); before != nullptr) before_ = before;
    setenv("TMPDIR", folder_.path().c_str(), 1);
  }
  ~TimingLeaseTest() override {
    before_.has_value() ? setenv("TMPDIR", before_->c_str(), 1) : unsetenv("TMPDIR");
  }
  static bool Alone(DeviceType device, int index = 0) {
    return TimingLease::Take(device, index, 0).alone();
  }

  TempDir folder_;
  std::optional<std::string> before_;
};

TEST_F(TimingLeaseTest, OneAtATimeOnTheCpu) {
  {
    const TimingLease lease = TimingLease::Take(DeviceType::kCpu, 0, 0);
    EXPECT_TRUE(lease.alone());
    EXPECT_FALSE(Alone(DeviceType::kCpu));
    EXPECT_FALSE(Alone(DeviceType::kCuda));
  }
  EXPECT_TRUE(Alone(DeviceType::kCpu));
}

TEST_F(TimingLeaseTest, DifferentGpusAreConcurrent) {
  const TimingLease lease = TimingLease::Take(DeviceType::kCuda, 0, 0);
  EXPECT_TRUE(lease.alone());
  EXPECT_TRUE(Alone(DeviceType::kCuda, 1));
  EXPECT_FALSE(Alone(DeviceType::kCuda, 0));
  EXPECT_FALSE(Alone(DeviceType::kCpu));
  setenv("CUDA_VISIBLE_DEVICES", "3,0", 1);  // the same GPU by another number
  EXPECT_TRUE(Alone(DeviceType::kCuda, 0));
  EXPECT_FALSE(Alone(DeviceType::kCuda, 1));
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(TimingLeaseTest, WaitsForTheOther) {
  std::optional<TimingLease> lease = TimingLease::Take(DeviceType::kCpu, 0, 0);
  std::thread other([] {
    const TimingLease second = TimingLease::Take(DeviceType::kCpu, 0, 60);
    EXPECT_TRUE(second.alone());
    EXPECT_GT(second.waited_s(), 0.01);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  lease.reset();
  other.join();
}

TEST_F(TimingLeaseTest, WorksWithoutAFolder) {
  const std::string folder = folder_.path() + "/cudaforge-timing-" + std::to_string(geteuid());
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);  // others could hold its locks
  const TimingLease lease = TimingLease::Take(DeviceType::kCpu, 0, 0);
  EXPECT_TRUE(Alone(DeviceType::kCpu));
}

}  // namespace
}  // namespace cudaforge
