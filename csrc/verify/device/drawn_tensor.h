// A tensor of drawn numbers: a flat struct that a kernel takes by value. Made by
// verify/draw_plan.h, drawn by device/draw.h.
//
// An element has a place in a group (elements that the region reduces together, as a row of a
// softmax). Each group is one row, or is cut into up to 16 if there are few groups. The row
// determines the kind of its numbers; kinds rotate.
#pragma once

#include "verify/device/philox.h"

namespace cudaforge::device {

enum class DrawType : int { kFloat32, kFloat16, kBFloat16, kFloat64, kInt64, kInt32, kBool };

// The distribution of a row's numbers. "normal": normal numbers times `scale`, plus `shift`.
enum class DrawForm : int {
  // For floating dtypes.
  kNormal,
  kUniform,     // [0, scale) + shift
  kMagnitude,   // 0.5 to 1.6, of either sign
  kIntegers,    // shift to shift + scale - 1
  kConstant,    // shift
  kCancelling,  // every second number cancels the one before
  kSparse,      // 1 in 16 is normal, the others are zero
  kFirstLarge,  // shift, then normal without it
  kLastTenth,   // normal; the last tenth of a group 256 times as large
  kPosition,    // normal, plus place % 256 / 16
  kAlike,   // normal, but many of these rows are equal, many except for one element (the first, the
            // last or any), and some except for the last quarter
  kOneHot,  // zero, except one 1 in each group
  kRowConstant,    // one multiple of 0.25 for the row, within 3.75
  kWide,           // normal times powers of two, 2^-8 to 2^7
  kSomeZeros,      // normal, but 1 in 4 is a zero of either sign
  kZeros,          // of either sign
  kDenormals,      // only denormals
  kSomeDenormals,  // normal, but 1 in 4 is denormal
  kManySpecial,    // normal, but 1 in 8 is special as `detail` says: see SpecialKind
  kNearEdges,      // near 0 and 1 (detail 0), near -1 and 1 (1), logarithms near 0 and far (2);
                   // `scale` is the nearest number drawn
  kMask,           // see MaskHides
  kAnyExponent,    // either sign, any significand; one of `scale` exponents from `shift` on, in the
                   // encoding of the computation's type; 0: denormals
  kNextAbove,      // one number for the row, and its upper neighbours: see StepsAbove
  // For all dtypes.
  kListed,  // one of DrawnTensor::list; with detail 1 in rotation
  // For integers and booleans: `low` and `range` are in shift and scale.
  kBelow,         // low to low + range - 1
  kIgnoring,      // the same, but 1 in 8 (detail 1) or every second (2) is `ignore`
  kIgnored,       // only `ignore`
  kFirst,         // low
  kLast,          // low + range - 1
  kFirstOrLast,   // alternating
  kSameInRow,     // one of them for the row
  kNeighbours,    // four neighbours are equal
  kDistinct,      // a permutation, repeated after range elements
  kAscending,     // low + place % range
  kAnyMagnitude,  // up to 2^63 (int32: 2^31), and the region's constants and their neighbours
  kFew,           // 1 in 16 is 1, else 0
  kMost,          // 1 in 16 is 0, else 1
  kMaskBits,      // mask as kMask does, each pattern and its inverse
};

enum class SpecialKind : int { kNan, kPlus, kMinus, kEither, kAll };

struct DrawRowKind {
  DrawForm form;
  int detail;
  double scale, shift;
};

// Replaces a row kind: one number in the whole group except for one element.
enum class DrawPlace : int { kNowhere, kLast, kFirst, kInside };
struct DrawPattern {
  double background, other;
  DrawPlace place;
  int unused;
};

// A dimension in memory. Dimensions of stride 0 or size 1 are left out.
struct DrawDim {
  int64_t size;
  Divisor stride;  // in elements
  // The change of the group number, or of the place, for one step along it.
  int64_t group_step, place_step;
};

// An element of the storage with a given value.
struct DrawSpot {
  int64_t offset;  // in elements
  uint64_t bits;   // a float for all dtypes up to 32 bits, a double, or an int64
};

enum DrawLimits : int {
  kDrawDims = 9,  // one of eight may be split in two
  kDrawKinds = 16,
  kDrawSpots = 8,
  kDrawConstants = 8,
  kDrawListed = 32,
};

// Added to rows: one special value a group, or patterns instead of all rows.
enum class DrawSingles : int { kNone, kSpecials, kPatterns };

struct DrawnTensor {
  DrawType type;
  int rank;
  int64_t elements;         // of the storage, including gaps of views between elements
  DrawDim dims[kDrawDims];  // strides descend; no two positions have one offset
  int64_t groups, length;   // number of groups, and elements of one
  int64_t tenth;            // the first place of its last tenth
  Divisor row_length;       // elements of one of its rows
  int64_t rows_of_group;

  // Row r has kind (r + r / 16 + rotation) % 16.
  DrawRowKind kinds[kDrawKinds];
  uint32_t rotation;
  int same_kinds;   // not 0: all rows have kinds[0], which depends on neither row nor place
  uint32_t stream;  // tensors with equal stream, seed and layout are equal

  // For groups g with (g + phase) % every == 0; the number is (g + phase) / every + first.
  DrawSingles singles;
  int only_nan;
  Divisor every;
  int64_t phase, first;
  uint32_t turn;  // secret: added to the numbers that choose special values and places
  DrawPattern patterns[kDrawKinds];

  int spots;
  int gap_is_ordinary;  // else every byte of a gap is 0xff
  DrawRowKind gap;      // depends on no place
  DrawSpot spot[kDrawSpots];

  int64_t ignore;
  int64_t step;  // kDistinct: coprime with the range
  int constants, denormal_shift;
  int64_t constant[kDrawConstants];
  uint64_t list[kDrawListed];  // bits, as in DrawSpot
};

// The secret part of one drawing of a tensor.
struct DrawKey {
  uint64_t philox;
  uint64_t rows;
};
CF_DRAW DrawKey DrawKeyOf(uint64_t seed, uint32_t stream) {
  const Words4 words = Philox(seed, ~uint64_t{0}, stream, 0xffffffffu);
  return {(static_cast<uint64_t>(words.w1) << 32) | words.w0,
          (static_cast<uint64_t>(words.w3) << 32) | words.w2};
}

// Returns the random words of elements [4 block, 4 block + 4) of the storage.
CF_DRAW Words4 DrawWords(const DrawKey& key, uint64_t block) {
  return Philox(key.philox, block, 0x64726177u, 0);
}

}  // namespace cudaforge::device
