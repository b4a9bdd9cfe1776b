// The bytes that the verifier writes before a candidate runs: a function of pattern, seed and
// position in the buffer. So they can be checked without a copy.
#pragma once

#include "verify/device/portable.h"

namespace cudaforge::device {

// Makes an 8-byte word from 64 random bits: keeps those of `keep` and, from bit `shift`, those of
// `octaves` plus `base` (the exponents of floats).
struct FillRule {
  uint64_t keep;
  uint64_t octaves;
  uint64_t base;
  int shift;
};

// SplitMix64's output number `index` for `seed`.
CF_DEVICE uint64_t FillHash(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Word number `index` of a buffer, the first byte in the low bits.
CF_DEVICE uint64_t FillWord(const FillRule& rule, uint64_t seed, uint64_t index) {
  const uint64_t hash = FillHash(seed, index);
  const uint64_t exponents = ((hash >> rule.shift) & rule.octaves) + rule.base;
  return (hash & rule.keep) | (exponents << rule.shift);
}

// The 8 bytes at byte `position`, which can be any number.
CF_DEVICE uint64_t FillAt(const FillRule& rule, uint64_t seed, uint64_t position) {
  const uint64_t index = position >> 3;
  const int shift = static_cast<int>(position & 7) * 8;
  const uint64_t low = FillWord(rule, seed, index);
  if (shift == 0) return low;
  return (low >> shift) | (FillWord(rule, seed, index + 1) << (64 - shift));
}

CF_DEVICE unsigned char FillByte(const FillRule& rule, uint64_t seed, uint64_t position) {
  return static_cast<unsigned char>(FillWord(rule, seed, position >> 3) >> ((position & 7) * 8));
}

// The bytes of a buffer that differ from the pattern.
struct FillDifference {
  uint64_t changed = 0;
  uint64_t first = ~uint64_t{0};  // the lowest position

  // `is` and `expected`: 8 bytes at `position`, low byte first.
  CF_DEVICE void Compare(uint64_t is, uint64_t expected, uint64_t position) {
    if (is == expected) return;
    for (uint64_t left = is ^ expected; left != 0; left >>= 8, ++position) {
      if ((left & 0xff) == 0) continue;
      ++changed;
      if (position < first) first = position;
    }
  }

  // Compares `size` bytes, at most 8, of the buffer `data` at `position`.
  CF_DEVICE void CompareSlot(const unsigned char* data, uint64_t position, int size,
                             const FillRule& rule, uint64_t seed) {
    uint64_t is = 0;
    for (int i = 0; i < size; ++i) is |= static_cast<uint64_t>(data[position + i]) << (8 * i);
    const uint64_t mask = size == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * size)) - 1;
    Compare(is, FillAt(rule, seed, position) & mask, position);
  }
};

// Spoiling inverts one 8-byte word in each group of 256 bytes; the last group may be smaller. A
// buffer of fewer than 8 bytes is one group, which is inverted as a whole.
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

}  // namespace cudaforge::device
