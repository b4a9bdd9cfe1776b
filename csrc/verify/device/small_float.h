// Rounds a float32 to smaller formats, to nearest even, with integer operations. A NaN keeps its
// sign and the upper bits of its payload, and becomes quiet.
#pragma once

#include "verify/device/philox.h"

namespace cudaforge::device {

CF_DRAW uint16_t BFloat16Of(uint32_t bits) {
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded);
}

// A format of `kExponent` and `kFraction` bits with IEEE 754 infinities: float16 (5, 10),
// float8_e5m2 (5, 2). Without kInfinities, as float8_e4m3fn (4, 3): the largest exponent holds
// numbers, all ones is NaN, and overflow gives NaN, as in PyTorch.
template <int kExponent, int kFraction, bool kInfinities = true>
CF_DRAW uint32_t SmallFloatOf(uint32_t bits) {
  constexpr int kDrop = 23 - kFraction;
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr uint32_t kOnes = (1u << (kExponent + kFraction)) - 1;
  constexpr uint32_t kInfinity = kOnes >> kFraction << kFraction;
  const uint32_t sign = bits >> 31 << (kExponent + kFraction);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const auto exponent = static_cast<int32_t>(magnitude >> 23);  // biased by 127
  // Normal results: subtract to change the exponent's bias, then round the fraction. A carry goes
  // into the exponent.
  const uint32_t moved = magnitude - (static_cast<uint32_t>(127 - kBias) << 23);
  const uint32_t normal = (moved + (1u << (kDrop - 1)) - 1 + ((moved >> kDrop) & 1)) >> kDrop;
  // Denormal results: shift the fraction with its leading 1.
  const int32_t wanted = kDrop + (127 - kBias + 1) - exponent;
  const auto shift = static_cast<uint32_t>(wanted < 1 ? 1 : wanted > 31 ? 31 : wanted);
  const uint32_t fraction = exponent == 0 ? 0 : (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t kept = fraction >> shift;
  const uint32_t rest = fraction - (kept << shift), half = 1u << (shift - 1);
  const uint32_t small = kept + (rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0);
  uint32_t result = exponent <= 127 - kBias ? small : normal;
  if constexpr (kInfinities) {
    const uint32_t nan = kInfinity | (1u << (kFraction - 1)) | ((magnitude & 0x7fffffu) >> kDrop);
    const bool large = exponent >= 127 + kBias + 1 || result > kInfinity;
    result = large ? kInfinity : result;
    result = magnitude > 0x7f800000u ? nan : result;
  } else {
    const bool large = exponent > 127 + kBias + 1 || result > kOnes;
    result = large ? kOnes : result;
  }
  return sign | result;
}

CF_DRAW uint16_t Float16Of(uint32_t bits) {
  return static_cast<uint16_t>(SmallFloatOf<5, 10>(bits));
}
CF_DRAW uint8_t Float8E5M2Of(uint32_t bits) {
  return static_cast<uint8_t>(SmallFloatOf<5, 2>(bits));
}
CF_DRAW uint8_t Float8E4M3Of(uint32_t bits) {
  return static_cast<uint8_t>(SmallFloatOf<4, 3, false>(bits));
}

}  // namespace cudaforge::device
