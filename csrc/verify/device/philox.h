// Random bits from a key and a counter, by integer operations: the same on every device.
#pragma once

#include "verify/device/portable.h"

#ifdef __CUDACC_RTC__
#define CF_DRAW __device__ __forceinline__
#else
// Inlined into loops that are compiled for several instruction sets (verify/draw_loops.cc).
#define CF_DRAW inline __attribute__((always_inline))
#endif

namespace cudaforge::device {

struct Words4 {
  uint32_t w0, w1, w2, w3;
};

// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
CF_DRAW Words4 Philox(uint64_t key, uint64_t counter, uint32_t third, uint32_t fourth) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  auto c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
  uint32_t c2 = third, c3 = fourth;
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = static_cast<uint64_t>(0xd2511f53u) * c0;
    const uint64_t b = static_cast<uint64_t>(0xcd9e8d57u) * c2;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(b);
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(a);
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return {c0, c1, c2, c3};
}

// SplitMix64's output function.
CF_DRAW uint64_t Mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// MurmurHash3's 32-bit finaliser.
CF_DRAW uint32_t Mix32(uint32_t z) {
  z = (z ^ (z >> 16)) * 0x85ebca6bu;
  z = (z ^ (z >> 13)) * 0xc2b2ae35u;
  return z ^ (z >> 16);
}

// Makes 64 bits from 32: every bit depends on all of them.
CF_DRAW uint64_t Spread64(uint32_t w) {
  const uint64_t z = (w + uint64_t{0x632be59bd9b4e019u}) * 0x9e3779b97f4a7c15u;
  return (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
}

CF_DRAW uint64_t MulHigh(uint64_t a, uint64_t b) {
#ifdef __CUDACC_RTC__
  return __umul64hi(a, b);
#else
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
#endif
}

// [0, n) from 64 random bits. REQUIRES: n > 0.
CF_DRAW uint64_t BelowOf(uint64_t bits, uint64_t n) { return MulHigh(bits, n); }

// Replaces division by a number known in advance.
struct Divisor {
  uint64_t value;    // above 0
  uint64_t inverse;  // (2^64 - 1) / value
};
// n / divisor. REQUIRES: n < 2^63, so that the first quotient is at most one too small.
CF_DRAW uint64_t Quotient(uint64_t n, const Divisor& divisor) {
  const uint64_t quotient = MulHigh(n, divisor.inverse);
  return quotient + (n - quotient * divisor.value >= divisor.value ? 1 : 0);
}

}  // namespace cudaforge::device
