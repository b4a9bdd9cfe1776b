#include "verify/device_memory.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"

namespace cudaforge {
namespace {

constexpr int64_t kFillGrain = 1 << 20;   // bytes that a thread processes at a time
constexpr int64_t kSpoilGrain = 1 << 14;  // groups

// The part [begin, end) of a buffer; `begin` is a multiple of 8.
void FillRange(unsigned char* data, int64_t begin, int64_t end, const device::FillRule& rule,
               uint64_t seed) {
  int64_t at = begin;
  for (; at + 8 <= end; at += 8) {
    const uint64_t word = device::FillWord(rule, seed, static_cast<uint64_t>(at) / 8);
    std::memcpy(data + at, &word, 8);
  }
  for (; at < end; ++at) data[at] = device::FillByte(rule, seed, static_cast<uint64_t>(at));
}

// Out of line, to leave registers for the loop below.
[[gnu::noinline]] void AddDifference(device::FillDifference& found, uint64_t is, uint64_t expected,
                                     int64_t at) {
  found.Compare(is, expected, static_cast<uint64_t>(at));
}

device::FillDifference CheckRange(const unsigned char* data, int64_t begin, int64_t end,
                                  const device::FillRule& given, uint64_t seed) {
  const device::FillRule rule = given;
  device::FillDifference found;
  int64_t at = begin;
  for (; at + 8 <= end; at += 8) {
    uint64_t word;
    std::memcpy(&word, data + at, 8);
    const uint64_t expected = device::FillWord(rule, seed, static_cast<uint64_t>(at) / 8);
    if (word != expected) AddDifference(found, word, expected, at);
  }
  for (; at < end; ++at) {
    AddDifference(found, data[at], device::FillByte(rule, seed, static_cast<uint64_t>(at)), at);
  }
  return found;
}

class CpuMemory : public DeviceMemory {
 public:
  Status Fill(void* data, int64_t bytes, FillPattern pattern, uint64_t seed, DType dtype) override {
    const device::FillRule rule = RuleOf(pattern, dtype);
    auto* const to = static_cast<unsigned char*>(data);
    ParallelChunks(bytes, kFillGrain, [&](int64_t, int64_t begin, int64_t end) {
      if (pattern == FillPattern::kNan || pattern == FillPattern::kZero) {
        std::memset(to + begin, pattern == FillPattern::kNan ? 0xff : 0,
                    static_cast<size_t>(end - begin));
      } else {
        FillRange(to, begin, end, rule, seed);
      }
    });
    return Status::Ok();
  }

  Result<FillDamage> CheckFill(const void* data, int64_t bytes, FillPattern pattern, uint64_t seed,
                               DType dtype) override {
    const device::FillRule rule = RuleOf(pattern, dtype);
    const auto* const from = static_cast<const unsigned char*>(data);
    std::vector<device::FillDifference> parts(static_cast<size_t>(ChunkCount(bytes, kFillGrain)));
    ParallelChunks(bytes, kFillGrain, [&](int64_t chunk, int64_t begin, int64_t end) {
      parts[static_cast<size_t>(chunk)] = CheckRange(from, begin, end, rule, seed);
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
  Status Synchronize() override { return Status::Ok(); }
  OwnKernels* kernels() override { return nullptr; }
  Result<void*> Scratch(int64_t) override {
    return Status::Unsupported("scratch memory is for kernels of a GPU");
  }
};

}  // namespace

device::FillRule RuleOf(FillPattern pattern, DType dtype) {
  switch (pattern) {
    case FillPattern::kNan:
      return {0, 0, ~uint64_t{0}, 0};
    case FillPattern::kZero:
      return {0, 0, 0, 0};
    case FillPattern::kOnes:
      switch (dtype) {
        case DType::kFloat64:
          return {0, 0, 0x3ff0000000000000u, 0};
        case DType::kFloat32:
          return {0, 0, 0x3f8000003f800000u, 0};
        case DType::kFloat16:
          return {0, 0, 0x3c003c003c003c00u, 0};
        case DType::kBFloat16:
          return {0, 0, 0x3f803f803f803f80u, 0};
        case DType::kInt64:
          return {0, 0, 1, 0};
        case DType::kInt32:
          return {0, 0, 0x0000000100000001u, 0};
        default:
          return {0, 0, 0x0101010101010101u, 0};
      }
    case FillPattern::kBytes:
      break;
    case FillPattern::kNumbers:
      // Floats: random sign and fraction, one of four octaves from 2^-2.
      switch (dtype) {
        case DType::kFloat64:
          return {0x800fffffffffffffu, 3, 1021, 52};
        case DType::kFloat32:
          return {0x807fffff807fffffu, 0x0000000300000003u, 0x0000007d0000007du, 23};
        case DType::kFloat16:
          return {0x83ff83ff83ff83ffu, 0x0003000300030003u, 0x000d000d000d000du, 10};
        case DType::kBFloat16:
          return {0x807f807f807f807fu, 0x0003000300030003u, 0x007d007d007d007du, 7};
        case DType::kInt64:
          return {0x7f, 0, 0, 0};
        case DType::kInt32:
          return {0x0000007f0000007fu, 0, 0, 0};
        case DType::kBool:
          return {0x0101010101010101u, 0, 0, 0};
      }
  }
  return {~uint64_t{0}, 0, 0, 0};
}

std::unique_ptr<DeviceMemory> MakeCpuMemory() { return std::make_unique<CpuMemory>(); }

}  // namespace cudaforge
