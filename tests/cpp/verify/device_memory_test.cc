#include "verify/device_memory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/cpp/verify/cuda_on_host.h"
#include "verify/device/own_kernels.cu"
#include "verify/elements.h"

namespace cudaforge {
namespace {

constexpr FillPattern kPatterns[] = {FillPattern::kNan, FillPattern::kNumbers, FillPattern::kBytes,
                                     FillPattern::kZero};
constexpr DType kFillDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                 DType::kFloat64, DType::kInt64,   DType::kInt32,
                                 DType::kBool};
constexpr int64_t kSizes[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 1000, 4099};
constexpr int64_t kMargin = 32;

// Bytes at `offset` from a multiple of 16, between margins of 0x5a.
struct Buffer {
  Buffer(int64_t bytes, int64_t offset)
      : all(static_cast<size_t>(bytes + 3 * kMargin), 0x5a), size(bytes) {
    const auto base = reinterpret_cast<uintptr_t>(all.data()) + kMargin;
    data = all.data() + kMargin + (16 - base % 16) % 16 + offset;
  }
  // Returns true if the margins are unchanged.
  bool MarginsHold() const {
    for (const unsigned char* p = all.data(); p != all.data() + all.size(); ++p) {
      if ((p < data || p >= data + size) && *p != 0x5a) return false;
    }
    return true;
  }
  std::vector<unsigned char> Bytes() const { return {data, data + size}; }

  std::vector<unsigned char> all;
  unsigned char* data;
  int64_t size;
};

TEST(DeviceMemory, FillIsExactAtEveryAlignment) {
  const auto memory = MakeCpuMemory();
  for (const FillPattern pattern : kPatterns) {
    for (const DType dtype : kFillDTypes) {
      for (const int64_t bytes : kSizes) {
        Buffer aligned(bytes, 0);
        ASSERT_TRUE(memory->Fill(aligned.data, bytes, pattern, 7, dtype).ok());
        for (const int64_t offset : {0, 1, 4, 13}) {
          Buffer buffer(bytes, offset);
          ASSERT_TRUE(memory->Fill(buffer.data, bytes, pattern, 7, dtype).ok());
          EXPECT_EQ(buffer.Bytes(), aligned.Bytes());
          EXPECT_TRUE(buffer.MarginsHold());
          EXPECT_EQ(memory->CheckFill(buffer.data, bytes, pattern, 7, dtype)->changed, 0);
        }
      }
    }
  }
}

TEST(DeviceMemory, FindsOneChangedByteAnywhere) {
  const auto memory = MakeCpuMemory();
  constexpr int64_t kBytes = 2053;
  for (const FillPattern pattern : kPatterns) {
    Buffer buffer(kBytes, 3);
    ASSERT_TRUE(memory->Fill(buffer.data, kBytes, pattern, 11).ok());
    for (int64_t i = 0; i < kBytes; ++i) {
      buffer.data[i] ^= 0x10;
      const FillDamage damage = memory->CheckFill(buffer.data, kBytes, pattern, 11).value();
      ASSERT_EQ(damage.changed, 1) << i;
      ASSERT_EQ(damage.first, i);
      buffer.data[i] ^= 0x10;
    }
  }
}

TEST(DeviceMemory, CountsChangedBytesOverChunks) {
  const auto memory = MakeCpuMemory();
  constexpr int64_t kBytes = (5 << 20) + 3;
  std::vector<unsigned char> data(kBytes);
  ASSERT_TRUE(memory->Fill(data.data(), kBytes, FillPattern::kBytes, 3).ok());
  for (const int64_t i : {int64_t{1} << 20, int64_t{3'000'000}, kBytes - 1}) data[i] ^= 1;
  const FillDamage damage = memory->CheckFill(data.data(), kBytes, FillPattern::kBytes, 3).value();
  EXPECT_EQ(damage.changed, 3);
  EXPECT_EQ(damage.first, 1 << 20);
  // Another seed changes nearly every byte.
  EXPECT_GT(memory->CheckFill(data.data(), kBytes, FillPattern::kBytes, 4)->changed,
            kBytes * 99 / 100);
}

TEST(DeviceMemory, NumbersAreOrdinary) {
  const auto memory = MakeCpuMemory();
  for (const DType dtype : kFillDTypes) {
    const auto size = static_cast<size_t>(DTypeSize(dtype));
    std::vector<char> data(4096 * size);
    ASSERT_TRUE(
        memory
            ->Fill(data.data(), static_cast<int64_t>(data.size()), FillPattern::kNumbers, 5, dtype)
            .ok());
    double least = 1e9;
    double most = 0;
    double sum = 0;
    for (size_t i = 0; i < 4096; ++i) {
      const double value = LoadElement(dtype, data.data() + i * size);
      if (dtype == DType::kBool) {
        ASSERT_LE(data[i], 1);
      }
      least = std::min(least, std::fabs(value));
      most = std::max(most, std::fabs(value));
      sum += value;
    }
    if (IsFloating(dtype)) {
      EXPECT_GE(least, 0.25);
      EXPECT_LT(most, 4);
      EXPECT_GT(most, 3.5);
      EXPECT_LT(std::fabs(sum / 4096), 0.15);
    } else {
      EXPECT_EQ(least, 0);
      EXPECT_EQ(most, dtype == DType::kBool ? 1 : 127);
    }
  }
}

TEST(DeviceMemory, SpoilsOneWordInEachGroup) {
  const auto memory = MakeCpuMemory();
  for (const int64_t bytes : {1, 7, 8, 100, 2048, 2049, 5000, 300'000}) {
    Buffer buffer(bytes, 5);
    ASSERT_TRUE(memory->Fill(buffer.data, bytes, FillPattern::kBytes, 1).ok());
    ASSERT_TRUE(memory->Spoil(buffer.data, bytes, 2).ok());
    const FillDamage damage = memory->CheckFill(buffer.data, bytes, FillPattern::kBytes, 1).value();
    EXPECT_EQ(damage.changed, bytes < 8 ? bytes : (bytes / 8 + 255) / 256 * 8) << bytes;
    EXPECT_TRUE(buffer.MarginsHold());
    ASSERT_TRUE(memory->Spoil(buffer.data, bytes, 2).ok());
    EXPECT_EQ(memory->CheckFill(buffer.data, bytes, FillPattern::kBytes, 1)->changed, 0);
  }
}

// Compares the kernels, run on the host, with the CPU's path.
TEST(OwnKernelsOnHost, FillCheckAndSpoilAsTheCpuDoes) {
  const auto memory = MakeCpuMemory();
  for (const FillPattern pattern : kPatterns) {
    for (const int64_t bytes : kSizes) {
      for (const int64_t offset : {0, 8, 3}) {
        Buffer cpu(bytes, 0);
        Buffer kernel(bytes, offset);
        const auto size = static_cast<uint64_t>(bytes);
        const device::FillRule rule = RuleOf(pattern, DType::kFloat32);
        ASSERT_TRUE(memory->Fill(cpu.data, bytes, pattern, 9).ok());
        on_host::Launch(fill_bytes, 2, 37, kernel.data, size, rule, uint64_t{9});
        ASSERT_EQ(kernel.Bytes(), cpu.Bytes()) << bytes << " at " << offset;
        EXPECT_TRUE(kernel.MarginsHold());
        if (bytes == 0) continue;
        ASSERT_TRUE(memory->Spoil(cpu.data, bytes, 4).ok());
        on_host::Launch(spoil_bytes, 2, 37, kernel.data, size, uint64_t{4});
        ASSERT_EQ(kernel.Bytes(), cpu.Bytes()) << bytes << " at " << offset;
        unsigned long long damage[2] = {0, ~0ull};
        on_host::Launch(check_fill, 2, 37, static_cast<const unsigned char*>(kernel.data), size,
                        rule, uint64_t{9}, &damage[0]);
        const FillDamage expected = memory->CheckFill(cpu.data, bytes, pattern, 9).value();
        EXPECT_EQ(damage[0], static_cast<uint64_t>(expected.changed));
        EXPECT_EQ(damage[1], static_cast<uint64_t>(expected.first));
      }
    }
  }
}

class GpuDeviceMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (!cu::DriverApi::Get().ok()) GTEST_SKIP() << "needs a GPU";
    auto kernels = OwnKernels::Create(0, {});
    ASSERT_TRUE(kernels.ok()) << kernels.status().ToString();
    memory_ = MakeCudaMemory(*std::move(kernels));
  }
  std::unique_ptr<DeviceMemory> memory_;
};

TEST_F(GpuDeviceMemory, AgreesWithTheCpu) {
  const auto cpu = MakeCpuMemory();
  constexpr int64_t kBytes = (3 << 20) + 5;
  auto* const base = static_cast<unsigned char*>(memory_->Scratch(2 * kBytes + 64).value());
  for (const FillPattern pattern : kPatterns) {
    for (const int64_t offset : {4096, 4096 + 5}) {
      unsigned char* const data = base + offset;
      std::vector<unsigned char> expected(kBytes), found(kBytes);
      ASSERT_TRUE(cpu->Fill(expected.data(), kBytes, pattern, 21).ok());
      ASSERT_TRUE(memory_->Fill(data, kBytes, pattern, 21).ok());
      ASSERT_TRUE(memory_->CopyToHost(found.data(), data, kBytes).ok());
      EXPECT_EQ(found, expected);
      EXPECT_EQ(memory_->CheckFill(data, kBytes, pattern, 21)->changed, 0);
      ASSERT_TRUE(cpu->Spoil(expected.data(), kBytes, 22).ok());
      ASSERT_TRUE(memory_->Spoil(data, kBytes, 22).ok());
      const FillDamage damage = memory_->CheckFill(data, kBytes, pattern, 21).value();
      const FillDamage wanted = cpu->CheckFill(expected.data(), kBytes, pattern, 21).value();
      EXPECT_EQ(damage.changed, wanted.changed);
      EXPECT_EQ(damage.first, wanted.first);
      // A copy to another alignment.
      ASSERT_TRUE(memory_->Copy(base + kBytes + 4096 + 11, data, kBytes - 4096).ok());
      ASSERT_TRUE(memory_->CopyToHost(found.data(), base + kBytes + 4096 + 11, kBytes - 4096).ok());
      EXPECT_EQ(std::memcmp(found.data(), expected.data(), kBytes - 4096), 0);
    }
  }
  EXPECT_TRUE(memory_->Synchronize().ok());
}

}  // namespace
}  // namespace cudaforge
