// The bytes that the verifier puts into memory before a candidate runs: a function of the pattern,
// the seed and the position from the buffer's first byte, so that nothing needs to be kept to
// check them.
#pragma once

#include "verify/device/portable.h"

namespace cudaforge::device {

// Words of 8 bytes, little-endian.
enum class FillKind : int {
  kNan,      // every byte 0xff: NaN in every floating dtype
  kZero,     // every byte 0
  kBytes,    // random bytes
  kFloat64,  // numbers of either sign between 0.25 and 4
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt64,  // 0 to 127
  kInt32,
  kBool,  // bytes of 0 and 1
};

// SplitMix64's output for its state number `index` after `seed`.
CF_DEVICE uint64_t FillHash(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Word number `index` of a buffer.
template <FillKind kKind>
CF_DEVICE uint64_t FillWord(uint64_t seed, uint64_t index) {
  if constexpr (kKind == FillKind::kNan) return ~uint64_t{0};
  if constexpr (kKind == FillKind::kZero) return 0;
  const uint64_t hash = FillHash(seed, index);
  // Sign and fraction are random, and the two low bits of the exponent: bits 10 and 11 of a float's
  // exponent field choose among four octaves that begin at 0.25.
  if constexpr (kKind == FillKind::kFloat64) {
    const uint64_t octave = 1021 + ((hash >> 52) & 3);
    return (hash & 0x800fffffffffffffu) | (octave << 52);
  }
  if constexpr (kKind == FillKind::kFloat32) {
    const uint64_t octaves = ((hash >> 23) & 3) | ((hash >> 23) & (uint64_t{3} << 32));
    return (hash & 0x807fffff807fffffu) | ((octaves + 0x0000007d0000007du) << 23);
  }
  if constexpr (kKind == FillKind::kFloat16) {
    const uint64_t octaves = (hash >> 10) & 0x0003000300030003u;
    return (hash & 0x83ff83ff83ff83ffu) | ((octaves + 0x000d000d000d000du) << 10);
  }
  if constexpr (kKind == FillKind::kBFloat16) {
    const uint64_t octaves = (hash >> 7) & 0x0003000300030003u;
    return (hash & 0x807f807f807f807fu) | ((octaves + 0x007d007d007d007du) << 7);
  }
  if constexpr (kKind == FillKind::kInt64) return hash & 0x7f;
  if constexpr (kKind == FillKind::kInt32) return hash & 0x0000007f0000007fu;
  if constexpr (kKind == FillKind::kBool) return hash & 0x0101010101010101u;
  return hash;
}

// The 8 bytes from byte `position` on, where `position` is any number.
template <FillKind kKind>
CF_DEVICE uint64_t FillAt(uint64_t seed, uint64_t position) {
  const uint64_t index = position >> 3;
  const int shift = static_cast<int>(position & 7) * 8;
  const uint64_t low = FillWord<kKind>(seed, index);
  if (shift == 0) return low;
  return (low >> shift) | (FillWord<kKind>(seed, index + 1) << (64 - shift));
}

template <FillKind kKind>
CF_DEVICE unsigned char FillByte(uint64_t seed, uint64_t position) {
  return static_cast<unsigned char>(FillWord<kKind>(seed, position >> 3) >> ((position & 7) * 8));
}

// The bytes of a buffer that are not what the pattern says.
struct FillDifference {
  uint64_t changed = 0;
  uint64_t first = ~uint64_t{0};  // the lowest position

  // `is` and `expected`: the bytes from `position` on, low byte first.
  CF_DEVICE void Compare(uint64_t is, uint64_t expected, uint64_t position) {
    if (is == expected) return;
    for (uint64_t left = is ^ expected; left != 0; left >>= 8, ++position) {
      if ((left & 0xff) == 0) continue;
      ++changed;
      if (position < first) first = position;
    }
  }

  // `size` bytes, at most 8, of the buffer `data` from `position` on.
  template <FillKind kKind>
  CF_DEVICE void CompareSlot(const unsigned char* data, uint64_t position, int size,
                             uint64_t seed) {
    uint64_t is = 0;
    for (int i = 0; i < size; ++i) is |= static_cast<uint64_t>(data[position + i]) << (8 * i);
    const uint64_t mask = size == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * size)) - 1;
    Compare(is, FillAt<kKind>(seed, position) & mask, position);
  }
};

// Spoiling: one word of 8 bytes in each group of 256 is inverted; the last group may be smaller. A
// buffer of fewer than 8 bytes is one group, all of which is inverted.
CF_DEVICE uint64_t SpoilGroups(uint64_t bytes) {
  if (bytes == 0) return 0;
  return bytes < 8 ? 1 : (bytes / 8 + 255) / 256;
}
CF_DEVICE void SpoilGroup(unsigned char* data, uint64_t bytes, uint64_t seed, uint64_t group) {
  const uint64_t left = bytes / 8 - group * 256;
  const uint64_t words = left < 256 ? left : 256;
  const uint64_t word = words == 0 ? 0 : group * 256 + FillHash(seed, group) % words;
  const uint64_t end = words == 0 ? bytes : word * 8 + 8;
  for (uint64_t i = word * 8; i < end; ++i) data[i] = static_cast<unsigned char>(~data[i]);
}

// Runs body(Constant<FillKind, kind>()) for a kind known at run time.
template <typename Body>
CF_DEVICE void WithFillKind(FillKind kind, const Body& body) {
  switch (kind) {
    case FillKind::kNan:
      return body(Constant<FillKind, FillKind::kNan>());
    case FillKind::kZero:
      return body(Constant<FillKind, FillKind::kZero>());
    case FillKind::kBytes:
      return body(Constant<FillKind, FillKind::kBytes>());
    case FillKind::kFloat64:
      return body(Constant<FillKind, FillKind::kFloat64>());
    case FillKind::kFloat32:
      return body(Constant<FillKind, FillKind::kFloat32>());
    case FillKind::kFloat16:
      return body(Constant<FillKind, FillKind::kFloat16>());
    case FillKind::kBFloat16:
      return body(Constant<FillKind, FillKind::kBFloat16>());
    case FillKind::kInt64:
      return body(Constant<FillKind, FillKind::kInt64>());
    case FillKind::kInt32:
      return body(Constant<FillKind, FillKind::kInt32>());
    case FillKind::kBool:
      return body(Constant<FillKind, FillKind::kBool>());
  }
}

}  // namespace cudaforge::device
