// SplitMix64: a small, fast, seedable generator; the same numbers on every machine.
#pragma once

#include <cstdint>

namespace cudaforge {

class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // [0, 1), 53 random bits.
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // Mean 0, deviation 1, within +-3.5 (the sum of four uniforms), with random low bits.
  double Normal() {
    const uint64_t bits = Next();
    const auto sum = static_cast<double>((bits & 0xffff) + ((bits >> 16) & 0xffff) +
                                         ((bits >> 32) & 0xffff) + (bits >> 48));
    return (sum + Uniform() - 131070.5) * (1.7320508075688772 / 65536);
  }
  // [0, n); the bias is below n / 2^64.
  uint64_t Below(uint64_t n) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * n) >> 64);
  }

 private:
  uint64_t state_;
};

}  // namespace cudaforge
