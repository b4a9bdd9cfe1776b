// The screen's comparison of one element, and the order of its visit (verify/screen.h).
#pragma once

#include "verify/device/element.h"

namespace cudaforge::device {

// Bands of |aten|: 0 is zero, 1 to 62 are octaves from 2^-41 to 2^20 (the outer two are
// open-ended), 63 has the elements where either value is NaN or infinite.
enum : int {
  kBands = 64,
  kSpecialBand = 63,
  kLowestOctave = -41,
  kHighestOctave = 20,
  kMostTiles = 8192,
  kTileUnit = 256,  // a tile has a multiple of this many elements
  kPicksPerBand = 16,
  kMostDims = 8,
};

struct Seen {
  int band = 0;
  float error = 0;            // |candidate - aten| / 2^octave of aten; / 1 where aten is zero
  bool unequal = false;       // by the rule
  bool mask_unequal = false;  // NaN, +inf or -inf in one of the two
  bool special = false;       // aten is NaN or infinite
};

CF_DEVICE int BandOfOctave(int octave) {
  const int inside = octave < kLowestOctave ? int{kLowestOctave} : octave;
  return (inside > kHighestOctave ? int{kHighestOctave} : inside) - kLowestOctave + 1;
}

// `bitwise`: zeros of different signs are unequal.
template <ElementKind kKind>
CF_DEVICE Seen Look(typename Element<kKind>::Bits aten, typename Element<kKind>::Bits candidate,
                    bool bitwise) {
  using E = Element<kKind>;
  using Real = typename E::Real;
  Seen seen;
  seen.special = E::IsSpecial(aten);
  if (seen.special || E::IsSpecial(candidate)) {
    seen.band = kSpecialBand;
    if (aten == candidate || (E::IsNan(aten) && E::IsNan(candidate))) return seen;
    seen.unequal = true;
    seen.mask_unequal = true;
    seen.error = 1;
    return seen;
  }
  Real unit = 1;
  if (!E::IsZero(aten)) {
    const int octave = E::Octave(aten);
    seen.band = BandOfOctave(octave);
    unit = PowerOfMinus(octave, Real{0});
  }
  if (aten == candidate) return seen;
  const Real difference = E::Value(candidate) - E::Value(aten);
  const Real relative = Absolute(difference) * unit;
  constexpr Real kMost = 1ll << 50;  // its square is a float32
  seen.error = static_cast<float>(relative < kMost ? relative : kMost);
  seen.unequal = bitwise || difference != 0;
  // An error that underflows float32, or different bits of equal numbers, ranks above no error.
  if (seen.unequal && seen.error == 0) seen.error = BitCast<float>(1u);
  return seen;
}

// A larger key is a larger error, or an equal one closer to the start of the tile.
CF_DEVICE uint64_t KeyOf(float error, uint32_t place) {
  return (static_cast<uint64_t>(BitCast<uint32_t>(error)) << 32) | (0xffffffffu - place);
}
CF_DEVICE uint32_t PlaceOf(uint64_t key) { return 0xffffffffu - static_cast<uint32_t>(key); }
CF_DEVICE float ErrorOf(uint64_t key) { return BitCast<float>(static_cast<uint32_t>(key >> 32)); }

// Elements in the order visited: dimensions by decreasing stride, contiguous ones merged. Strides
// in elements. No dimension: one element.
struct Layout {
  int dims = 0;
  uint64_t sizes[kMostDims] = {};
  uint64_t strides[kMostDims] = {};

  // Returns true if element number i is at offset i.
  CF_DEVICE bool IsDense() const { return dims == 0 || (dims == 1 && strides[0] == 1); }
  CF_DEVICE uint64_t OffsetOf(uint64_t number) const {
    if (IsDense()) return number;
    uint64_t offset = 0;
#ifdef __CUDACC_RTC__
#pragma unroll 1
#endif
    for (int d = dims - 1; d >= 0; --d) {
      offset += number % sizes[d] * strides[d];
      number /= sizes[d];
    }
    return offset;
  }
  // Returns true if an element is at this offset. REQUIRES: each stride is larger than the reach of
  // all later ones.
  CF_DEVICE bool Covers(uint64_t offset) const {
    for (int d = 0; d < dims; ++d) {
      if (offset / strides[d] >= sizes[d]) return false;
      offset %= strides[d];
    }
    return offset == 0;
  }
};

// One of a band's largest errors.
struct Pick {
  uint64_t number = 0;  // of the element, in the order visited
  double aten = 0;
  double candidate = 0;
  uint32_t tile = 0;
  float error = 0;  // as Seen's; 0: no pick
};

struct BandSums {
  uint64_t count = 0;
  double squares = 0;         // of the errors; not in the special band
  Pick picks[kPicksPerBand];  // the largest errors, decreasing; at most one for each tile
};

struct Totals {
  unsigned long long unequal = 0;
  unsigned long long first_unequal = ~0ull;
  unsigned long long mask_unequal = 0;
  unsigned long long first_mask_unequal = ~0ull;
  unsigned long long specials = 0;
};

// Arguments of a launch. Tile t has elements [t * tile_size, (t + 1) * tile_size) of the n in the
// order visited. keys, squares and counts have one entry for each band and tile, at [band * tiles +
// tile].
struct ScreenArgs {
  const void* aten = nullptr;
  const void* candidate = nullptr;
  uint64_t n = 0;
  uint64_t tile_size = 0;
  uint64_t tiles = 0;
  Layout layout;
  uint64_t* keys = nullptr;  // KeyOf the largest error; 0: none
  float* squares = nullptr;
  uint32_t* counts = nullptr;
  Totals* totals = nullptr;
  BandSums* bands = nullptr;  // kBands of them; written by the merging kernel
  ElementKind kind = ElementKind::kFloat32;
  int bitwise = 0;
};

// Returns a tile's number of elements, for a tensor of n elements.
CF_DEVICE uint64_t TileSize(uint64_t n) {
  const uint64_t least = (n + kMostTiles - 1) / kMostTiles;
  return (least + kTileUnit - 1) / kTileUnit * kTileUnit;
}

// Converts any element's bits to a double, including NaN and infinities.
template <ElementKind kKind>
CF_DEVICE double ValueOf(typename Element<kKind>::Bits bits) {
  using E = Element<kKind>;
  if (!E::IsSpecial(bits)) return static_cast<double>(E::Value(bits));
  if (E::IsNan(bits)) return BitCast<double>(uint64_t{0x7ff8000000000000u});
  const bool negative = (bits >> (8 * sizeof(bits) - 1)) != 0;
  return BitCast<double>(uint64_t{negative ? 0xfff0000000000000u : 0x7ff0000000000000u});
}

}  // namespace cudaforge::device
