// What a tensor of drawn numbers is: a flat struct that a kernel takes by value. Made by
// verify/draw_plan.h, drawn by device/draw.h.
//
// Elements belong to groups (what the region takes together: a row of a softmax) and have a place
// in their group. Groups are cut into rows, one each or, where they are few, up to 16. The row
// decides which kind of numbers its elements are: kinds come in turns.
#pragma once

#include "verify/device/philox.h"

namespace cudaforge::device {

enum class DrawType : int { kFloat32, kFloat16, kBFloat16, kFloat64, kInt64, kInt32, kBool };

// What numbers a row has. "normal": normal numbers times `scale`, plus `shift`.
enum class DrawForm : int {
  // Of floating dtypes.
  kNormal,
  kUniform,        // [0, scale) + shift
  kMagnitude,      // 0.5 to 1.6, of either sign
  kIntegers,       // shift to shift + scale - 1
  kConstant,       // shift
  kCancelling,     // every second number takes back the one before
  kSparse,         // 1 in 16 is normal, the others are zero
  kFirstLarge,     // shift, then normal without it
  kLastTenth,      // normal; the last tenth of a group 256 times as large
  kPosition,       // normal, plus place % 256 / 16
  kAlike,          // normal, but of these rows many are equal, many but for one element (the first,
                   // the last or any), and some up to their last quarter
  kOneHot,         // zero, but for a 1 somewhere in each group
  kRowConstant,    // one multiple of 0.25 for the row, within 3.75
  kWide,           // normal times powers of two, 2^-8 to 2^7
  kSomeZeros,      // normal, but 1 in 4 is a zero of either sign
  kZeros,          // of either sign
  kDenormals,      // nothing else
  kSomeDenormals,  // normal, but 1 in 4 is denormal
  kManySpecial,    // normal, but 1 in 8 is what `detail` says: see SpecialKind
  kNearEdges,      // near 0 and 1 (detail 0), near -1 and 1 (1), logarithms near 0 and far (2);
                   // `scale` is the nearest that is drawn
  kMask,           // see MaskHides
  kAnyExponent,    // of either sign, any significand; its exponent is one of `scale` from shift on,
                   // as the bits of the type that it is computed in have it; 0: denormals
  kNextAbove,      // one number for the row, and the numbers next above it: see StepsAbove
  // Of all dtypes.
  kListed,  // one of DrawnTensor::list; with detail 1 one after the other
  // Of integers and booleans: `low` and `range` are in shift and scale.
  kBelow,         // low to low + range - 1
  kIgnoring,      // the same, but 1 in 8 (detail 1) or every second (2) is `ignore`
  kIgnored,       // `ignore` alone
  kFirst,         // low
  kLast,          // low + range - 1
  kFirstOrLast,   // by turns
  kSameInRow,     // one of them for the row
  kNeighbours,    // four neighbours are equal
  kDistinct,      // a permutation, begun again after range elements
  kAscending,     // low + place % range
  kAnyMagnitude,  // up to 2^63 (int32: 2^31), and the region's constants and their neighbours
  kFew,           // 1 in 16 is 1, else 0
  kMost,          // 1 in 16 is 0, else 1
  kMaskBits,      // which hide as kMask does, each pattern and its opposite
};

enum class SpecialKind : int { kNan, kPlus, kMinus, kEither, kAll };

struct DrawRowKind {
  DrawForm form;
  int detail;
  double scale, shift;
};

// In place of a row kind: one number all over a group but for one element.
enum class DrawPlace : int { kNowhere, kLast, kFirst, kInside };
struct DrawPattern {
  double background, other;
  DrawPlace place;
  int unused;
};

// A dimension in memory, those of stride 0 or of one element left out.
struct DrawDim {
  int64_t size;
  Divisor stride;  // in elements
  // What a step along it adds to the number of the group, or to the place.
  int64_t group_step, place_step;
};

// An element of the storage that is given, whatever its row has.
struct DrawSpot {
  int64_t offset;  // in elements
  uint64_t bits;   // of a float for all dtypes up to 32 bits, of a double, of an int64
};

enum DrawLimits : int {
  kDrawDims = 9,  // one of eight may be cut in two
  kDrawKinds = 16,
  kDrawSpots = 8,
  kDrawConstants = 8,
  kDrawListed = 32,
};

// What is added to rows: one special value a group, or patterns in place of all rows.
enum class DrawSingles : int { kNone, kSpecials, kPatterns };

struct DrawnTensor {
  DrawType type;
  int rank;
  int64_t elements;         // of the storage, gaps of views between elements included
  DrawDim dims[kDrawDims];  // strides descend; no two positions have one offset
  int64_t groups, length;   // of them, and elements of one
  int64_t tenth;            // where its last tenth begins
  Divisor row_length;       // elements of a row of it
  int64_t rows_of_group;

  // Row number r is of kind (r + r / 16 + rotation) % 16.
  DrawRowKind kinds[kDrawKinds];
  uint32_t rotation;
  int same_kinds;   // not 0: all kinds are kinds[0], which looks at no row and no place
  uint32_t stream;  // tensors of one stream, seed and layout are equal

  // Of groups number g with (g + phase) % every == 0: the one numbered (g + phase) / every + first.
  DrawSingles singles;
  int only_nan;
  Divisor every;
  int64_t phase, first;
  uint32_t turn;  // secret: what is added to the numbers that choose special values and places
  DrawPattern patterns[kDrawKinds];

  int spots;
  int gap_is_ordinary;  // else every byte of a gap is 0xff
  DrawRowKind gap;      // looks at no place
  DrawSpot spot[kDrawSpots];

  int64_t ignore;
  int64_t step;  // kDistinct: no common divisor with the range
  int constants, denormal_shift;
  int64_t constant[kDrawConstants];
  uint64_t list[kDrawListed];  // of bits, as DrawSpot's
};

// What is secret of one drawing of a tensor.
struct DrawKey {
  uint64_t philox;
  uint64_t rows;
};
CF_DRAW DrawKey DrawKeyOf(uint64_t seed, uint32_t stream) {
  const Words4 words = Philox(seed, ~uint64_t{0}, stream, 0xffffffffu);
  return {(static_cast<uint64_t>(words.w1) << 32) | words.w0,
          (static_cast<uint64_t>(words.w3) << 32) | words.w2};
}

// The random words of elements [4 block, 4 block + 4) of the storage.
CF_DRAW Words4 DrawWords(const DrawKey& key, uint64_t block) {
  return Philox(key.philox, block, 0x64726177u, 0);
}

}  // namespace cudaforge::device
