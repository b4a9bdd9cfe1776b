#include "verify/device_memory.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"

namespace cudaforge {
namespace {

constexpr int64_t kFillGrain = 1 << 20;   // bytes that a thread takes at a time
constexpr int64_t kSpoilGrain = 1 << 14;  // groups
using device::Constant;
using device::FillKind;

struct FillRange {
  unsigned char* data;  // of the whole buffer
  int64_t begin;        // a multiple of 8
  int64_t end;
  uint64_t seed;

  template <FillKind kKind>
  void operator()(Constant<FillKind, kKind>) const {
    if constexpr (kKind == FillKind::kNan || kKind == FillKind::kZero) {
      std::memset(data + begin, kKind == FillKind::kNan ? 0xff : 0,
                  static_cast<size_t>(end - begin));
      return;
    }
    int64_t at = begin;
    for (; at + 8 <= end; at += 8) {
      const uint64_t word = device::FillWord<kKind>(seed, static_cast<uint64_t>(at) / 8);
      std::memcpy(data + at, &word, 8);
    }
    for (; at < end; ++at) data[at] = device::FillByte<kKind>(seed, static_cast<uint64_t>(at));
  }
};

struct CheckRange {
  const unsigned char* data;
  int64_t begin;
  int64_t end;
  uint64_t seed;
  device::FillDifference* found;

  template <FillKind kKind>
  void operator()(Constant<FillKind, kKind>) const {
    device::FillDifference part;
    int64_t at = begin;
    for (; at + 8 <= end; at += 8) {
      uint64_t word;
      std::memcpy(&word, data + at, 8);
      const auto position = static_cast<uint64_t>(at);
      part.Compare(word, device::FillWord<kKind>(seed, position / 8), position);
    }
    for (; at < end; ++at) {
      const auto position = static_cast<uint64_t>(at);
      part.Compare(data[at], device::FillByte<kKind>(seed, position), position);
    }
    *found = part;
  }
};

class CpuMemory : public DeviceMemory {
 public:
  Status Fill(void* data, int64_t bytes, FillPattern pattern, uint64_t seed, DType dtype) override {
    const FillKind kind = FillKindOf(pattern, dtype);
    auto* const to = static_cast<unsigned char*>(data);
    ParallelChunks(bytes, kFillGrain, [&](int64_t, int64_t begin, int64_t end) {
      device::WithFillKind(kind, FillRange{to, begin, end, seed});
    });
    return Status::Ok();
  }

  Result<FillDamage> CheckFill(const void* data, int64_t bytes, FillPattern pattern, uint64_t seed,
                               DType dtype) override {
    const FillKind kind = FillKindOf(pattern, dtype);
    const auto* const from = static_cast<const unsigned char*>(data);
    std::vector<device::FillDifference> parts(static_cast<size_t>(ChunkCount(bytes, kFillGrain)));
    ParallelChunks(bytes, kFillGrain, [&](int64_t chunk, int64_t begin, int64_t end) {
      device::WithFillKind(kind,
                           CheckRange{from, begin, end, seed, &parts[static_cast<size_t>(chunk)]});
    });
    FillDamage damage;
    for (const device::FillDifference& part : parts) {
      if (part.changed == 0) continue;
      if (damage.changed == 0) damage.first = static_cast<int64_t>(part.first);
      damage.changed += static_cast<int64_t>(part.changed);
    }
    return damage;
  }

  Status Spoil(void* data, int64_t bytes, uint64_t seed) override {
    auto* const to = static_cast<unsigned char*>(data);
    const auto all = static_cast<uint64_t>(bytes);
    const auto groups = static_cast<int64_t>(device::SpoilGroups(all));
    ParallelChunks(groups, kSpoilGrain, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; ++g) {
        device::SpoilGroup(to, all, seed, static_cast<uint64_t>(g));
      }
    });
    return Status::Ok();
  }

  Status Copy(void* to, const void* from, int64_t bytes) override {
    ParallelChunks(bytes, kFillGrain, [&](int64_t, int64_t begin, int64_t end) {
      std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                  static_cast<size_t>(end - begin));
    });
    return Status::Ok();
  }
  Status CopyToHost(void* host, const void* data, int64_t bytes) override {
    return Copy(host, data, bytes);
  }
  Status CopyFromHost(void* data, const void* host, int64_t bytes) override {
    return Copy(data, host, bytes);
  }
  Status Scrub(uint64_t) override { return Status::Ok(); }
  Status Synchronize() override { return Status::Ok(); }
  OwnKernels* kernels() override { return nullptr; }
  Result<void*> Scratch(int64_t) override {
    return Status::Unsupported("scratch memory is for kernels of a GPU");
  }
};

}  // namespace

FillKind FillKindOf(FillPattern pattern, DType dtype) {
  switch (pattern) {
    case FillPattern::kNan:
      return FillKind::kNan;
    case FillPattern::kZero:
      return FillKind::kZero;
    case FillPattern::kBytes:
      return FillKind::kBytes;
    case FillPattern::kNumbers:
      break;
  }
  switch (dtype) {
    case DType::kFloat32:
      return FillKind::kFloat32;
    case DType::kFloat16:
      return FillKind::kFloat16;
    case DType::kBFloat16:
      return FillKind::kBFloat16;
    case DType::kFloat64:
      return FillKind::kFloat64;
    case DType::kInt64:
      return FillKind::kInt64;
    case DType::kInt32:
      return FillKind::kInt32;
    case DType::kBool:
      return FillKind::kBool;
  }
  return FillKind::kBytes;
}

std::unique_ptr<DeviceMemory> MakeCpuMemory() { return std::make_unique<CpuMemory>(); }

}  // namespace cudaforge
