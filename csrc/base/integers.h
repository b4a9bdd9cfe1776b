// Integer arithmetic.
#pragma once

#include <bit>
#include <cstdint>

namespace cudaforge {

constexpr bool IsPowerOfTwo(int64_t value) {
  return value > 0 && std::has_single_bit(static_cast<uint64_t>(value));
}

// CeilDiv and RoundUp REQUIRE: value >= 0, by > 0, and value + by does not overflow.
constexpr int64_t CeilDiv(int64_t value, int64_t by) { return (value + by - 1) / by; }
// Returns the least multiple of `by` that is at least `value`.
constexpr int64_t RoundUp(int64_t value, int64_t by) { return CeilDiv(value, by) * by; }

}  // namespace cudaforge
