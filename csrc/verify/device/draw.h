// Computes an element of a drawn tensor from its place in the storage. Shared by the CPU's loops
// (verify/draw_loops.cc) and the kernels (device/draw.cu).
#pragma once

#include "verify/device/draw_forms.h"
#include "verify/device/small_float.h"

namespace cudaforge::device {

// The position of an element of the storage.
struct DrawPosition {
  int64_t group, place;
  int64_t run;  // this element and those after it in memory along the innermost dimension
  int64_t group_step, place_step;  // from one element of the run to the next
  bool gap;                        // not an element of the tensor; `run` is of the gap
};

CF_DRAW DrawPosition DrawPositionOf(const DrawnTensor& tensor, int64_t offset) {
  DrawPosition at = {0, 0, 1, 0, 0, false};
  auto rest = static_cast<uint64_t>(offset);
  uint64_t whole = static_cast<uint64_t>(tensor.elements);  // number of elements that `rest`
                                                            // indexes
  for (int d = 0; d < tensor.rank; ++d) {
    const DrawDim& dim = tensor.dims[d];
    const auto size = static_cast<uint64_t>(dim.size);
    uint64_t position = dim.stride.value == 1 ? rest : Quotient(rest, dim.stride);
    const bool behind = position >= size;
    if (behind) position = size - 1;
    at.group += static_cast<int64_t>(position) * dim.group_step;
    at.place += static_cast<int64_t>(position) * dim.place_step;
    const uint64_t left = rest - position * dim.stride.value;
    if (behind || (d + 1 == tensor.rank && left != 0)) {
      at.gap = true;
      at.run = static_cast<int64_t>(behind ? whole - rest : dim.stride.value - left);
      return at;
    }
    if (d + 1 == tensor.rank && dim.stride.value == 1) {
      at.run = static_cast<int64_t>(size - position);
      at.group_step = dim.group_step;
      at.place_step = dim.place_step;
    }
    rest = left;
    whole = dim.stride.value;
  }
  return at;
}

// Returns a place of a group where loops often go wrong: its ends, its middle, the edges of steps
// of 8 to 4096 elements, the edges of a tile. Every second time any place, through the 32 lanes in
// rotation.
CF_DRAW int64_t SpecialPlace(uint32_t number, int64_t length, uint64_t key) {
  const uint32_t round = number >> 4;
  int shift = 3 + static_cast<int>(round & 3);                           // steps of 8, 16, 32, 64
  if ((round & 7) == 6) shift = 7 + static_cast<int>((round >> 3) % 6);  // of 128 to 4096
  const int64_t last_step = (length - 1) >> shift << shift;
  const int64_t begin = round / 3 % 2 == 0 ? last_step : int64_t{1} << shift;
  int64_t place = 0;
  switch (number & 15) {
    case 0:
      place = length - 1;
      break;
    case 1:
      break;
    case 2:
      place = length - 2;
      break;
    case 3:
      place = length / 2;
      break;
    case 4:
      place = length / 2 - 1;
      break;
    case 5:
      place = begin;
      break;
    case 6:
      place = begin - 1;
      break;
    default:
      place = static_cast<int64_t>(BelowOf(Mix64(key), static_cast<uint64_t>(length)));
      place = (place & ~int64_t{31}) + (((number & 15) + number / 48 * 9) & 31);
      break;
  }
  return place < 0 ? 0 : place >= length ? length - 1 : place;
}

// The bits of a number in the type that an element is computed in.
CF_DRAW uint64_t ComputedBits(DrawType type, double value) {
  switch (type) {
    case DrawType::kFloat64:
      return BitCast<uint64_t>(value);
    case DrawType::kInt64:
    case DrawType::kInt32:
      return value != value ? 0 : static_cast<uint64_t>(static_cast<int64_t>(value));
    case DrawType::kBool:
      return value != 0 ? 1 : 0;
    default:
      return BitCast<uint32_t>(static_cast<float>(value));
  }
}

// Sets the group's single value, for each of its rows.
CF_DRAW void SetSingle(const DrawnTensor& tensor, const DrawKey& drawn, int64_t group,
                       DrawRow& row) {
  const auto shifted = static_cast<uint64_t>(group + tensor.phase);
  const uint64_t turn = Quotient(shifted, tensor.every);
  if (turn * tensor.every.value != shifted) return;
  const auto number = static_cast<uint32_t>(static_cast<int64_t>(turn) + tensor.first);
  const uint64_t key = Mix64(drawn.philox ^ (static_cast<uint64_t>(group) * 0x9e3779b97f4a7c15u));
  if (tensor.singles == DrawSingles::kSpecials) {
    // Every 48 numbers, the order is shifted by one. So each value occurs at each kind of place,
    // and each lane of a kernel gets all values.
    const uint32_t moved = number + number / 48 + tensor.turn;
    row.special_place = SpecialPlace(moved, tensor.length, key);
    const auto kind = tensor.only_nan != 0 || moved % 3 == 2 ? SpecialKind::kNan
                      : moved % 3 == 0                       ? SpecialKind::kPlus
                                                             : SpecialKind::kMinus;
    const uint32_t which = (moved / 3) << 5;
    row.special_bits = tensor.type == DrawType::kFloat64 ? SpecialBits<double>(kind, which)
                                                         : SpecialBits<float>(kind, which);
    return;
  }
  const DrawPattern& pattern = tensor.patterns[(number + number / kDrawKinds) % kDrawKinds];
  row.form = DrawForm::kConstant;
  row.shift = pattern.background;
  row.special_bits = ComputedBits(tensor.type, pattern.other);
  if (pattern.place == DrawPlace::kLast) row.special_place = tensor.length - 1;
  if (pattern.place == DrawPlace::kFirst) row.special_place = 0;
  if (pattern.place == DrawPlace::kInside) {
    row.special_place = static_cast<int64_t>(BelowOf(key, static_cast<uint64_t>(tensor.length)));
  }
}

// Returns the row of the element at this place of a group. Another row may begin at the next
// multiple of tensor.row_length.
CF_DRAW DrawRow DrawRowOf(const DrawnTensor& tensor, const DrawKey& key, int64_t group,
                          int64_t place) {
  int64_t number = group;
  if (tensor.rows_of_group > 1) {
    number = group * tensor.rows_of_group +
             static_cast<int64_t>(Quotient(static_cast<uint64_t>(place), tensor.row_length));
  }
  const auto narrow = static_cast<uint32_t>(number);
  const DrawRowKind& kind =
      tensor.kinds[(narrow + narrow / kDrawKinds + tensor.rotation) % kDrawKinds];
  DrawRow row;
  row.form = kind.form;
  row.detail = kind.detail;
  row.scale = kind.scale;
  row.shift = kind.shift;
  row.key = Mix64(key.rows + static_cast<uint64_t>(number) * 0x9e3779b97f4a7c15u);
  row.number = number;
  row.seen = 0;
  row.special_place = -1;
  row.special_bits = 0;
  if (kind.form == DrawForm::kMask || kind.form == DrawForm::kMaskBits) {
    row.seen = static_cast<int64_t>(static_cast<uint64_t>(number) * 7 %
                                    static_cast<uint64_t>(tensor.length));
  }
  if (tensor.singles != DrawSingles::kNone) SetSingle(tensor, key, group, row);
  return row;
}

// Returns the integer of an element. REQUIRES: a form of integers, or kConstant.
CF_DRAW int64_t IntegerOf(const DrawnTensor& tensor, const DrawRow& row, int64_t group,
                          int64_t place, uint32_t word) {
  const auto low = static_cast<int64_t>(row.shift);
  const auto range = static_cast<uint64_t>(row.scale);
  const uint64_t bits = Spread64(word);
  switch (row.form) {
    case DrawForm::kConstant:
      return row.shift != row.shift ? 0 : low;
    case DrawForm::kIgnored:
      return tensor.ignore;
    case DrawForm::kIgnoring:
      if (Decide(word) < (row.detail == 2 ? 8 : 2)) return tensor.ignore;
      break;
    case DrawForm::kFirst:
      return low;
    case DrawForm::kLast:
      return low + static_cast<int64_t>(range) - 1;
    case DrawForm::kFirstOrLast:
      return place % 2 == 0 ? low : low + static_cast<int64_t>(range) - 1;
    case DrawForm::kSameInRow:
      return low + static_cast<int64_t>(BelowOf(row.key, range));
    case DrawForm::kNeighbours: {
      const uint64_t four = row.key + static_cast<uint64_t>(place >> 2) * 0x9e3779b97f4a7c15u;
      return low + static_cast<int64_t>(BelowOf(Mix64(four), range));
    }
    case DrawForm::kDistinct: {
      const auto index = static_cast<uint64_t>(group * tensor.length + place);
      const auto step = static_cast<uint64_t>(tensor.step);
      return low + static_cast<int64_t>((index % range * step + tensor.rotation) % range);
    }
    case DrawForm::kAscending:
      return low + static_cast<int64_t>(static_cast<uint64_t>(place) % range);
    case DrawForm::kFew:
      return Decide(word) == 0 ? 1 : 0;
    case DrawForm::kMost:
      return Decide(word) == 0 ? 0 : 1;
    case DrawForm::kMaskBits: {
      const uint32_t pattern = (static_cast<uint32_t>(row.number) + tensor.rotation) & 7;
      if (tensor.length < 2 || pattern == 0) return (word >> 10) & 1;
      constexpr uint64_t kPatterns = 0x55443211;  // four bits each, from pattern 0
      const auto hides = static_cast<uint32_t>(kPatterns >> (4 * pattern)) & 7;
      const bool bit = MaskHides(hides, row.seen, place, tensor.length, word);
      return bit == ((pattern & 1) != 0) ? 1 : 0;
    }
    case DrawForm::kAnyMagnitude: {
      // Avoids the least integer, whose quotient by -1 traps.
      const int most = tensor.type == DrawType::kInt32 ? 31 : 63;
      const uint32_t h = Mix32(word + 0x5bd1e995u);
      if (tensor.constants > 0 && (h & 7) == 0) {
        const auto which = (h >> 8) % static_cast<uint32_t>(tensor.constants);
        return tensor.constant[which] + static_cast<int64_t>((h >> 3 & 31) % 3) - 1;
      }
      const int fewer = static_cast<int>((h >> 8) % static_cast<uint32_t>(most));
      const auto magnitude = static_cast<int64_t>(bits >> (64 - most) >> fewer);
      return (h & 16) != 0 ? -magnitude : magnitude;
    }
    case DrawForm::kListed:
      return static_cast<int64_t>(tensor.list[WhichListed(tensor, row, place, word)]);
    default:
      break;
  }
  return low + static_cast<int64_t>(BelowOf(bits, range));
}

// The forms of floating dtypes except kNormal.
// clang-format off
#define CF_DRAW_FORMS(DO)                                                                   \
  DO(kUniform) DO(kMagnitude) DO(kIntegers) DO(kConstant) DO(kCancelling) DO(kSparse)       \
  DO(kFirstLarge) DO(kLastTenth) DO(kPosition) DO(kRowConstant) DO(kWide) DO(kSomeZeros)    \
  DO(kOneHot) DO(kAlike) DO(kAnyExponent) DO(kNextAbove) DO(kListed)                        \
  DO(kZeros) DO(kDenormals) DO(kSomeDenormals) DO(kManySpecial) DO(kNearEdges) DO(kMask)
// clang-format on

template <typename Real>
CF_DRAW typename RealTraits<Real>::Bits RealBits(const DrawnTensor& tensor, const DrawRow& row,
                                                 int64_t place, uint32_t word) {
#define CF_DRAW_FORM(NAME) \
  case DrawForm::NAME:     \
    return FormBits<DrawForm::NAME, Real>(tensor, row, place, word);
  switch (row.form) {
    CF_DRAW_FORMS(CF_DRAW_FORM)
    default:
      return FormBits<DrawForm::kNormal, Real>(tensor, row, place, word);
  }
#undef CF_DRAW_FORM
}

template <bool kFirst, typename A, typename B>
struct Choice {
  using Type = A;
};
template <typename A, typename B>
struct Choice<false, A, B> {
  using Type = B;
};

// How elements of a type are computed and stored.
template <DrawType kType>
struct DrawTraits {
  enum : bool {
    kIsReal = kType != DrawType::kInt64 && kType != DrawType::kInt32 && kType != DrawType::kBool,
    kIsWide = kType == DrawType::kFloat64 || kType == DrawType::kInt64,
    kIsHalf = kType == DrawType::kFloat16 || kType == DrawType::kBFloat16,
    kIsBool = kType == DrawType::kBool,
    kIsNarrowReal = kIsReal && !kIsWide,
  };
  using Real = typename Choice<kIsWide, double, float>::Type;
  // The bits of the type that an element is computed in; see DrawSpot.
  using Bits = typename Choice<kIsNarrowReal, uint32_t, uint64_t>::Type;
  using Narrow = typename Choice<kIsHalf, uint16_t, uint32_t>::Type;
  using Unsigned = typename Choice<kIsWide, uint64_t, Narrow>::Type;
  using Stored = typename Choice<kIsBool, uint8_t, Unsigned>::Type;
};

template <DrawType kType>
CF_DRAW typename DrawTraits<kType>::Stored StoredOf(typename DrawTraits<kType>::Bits bits) {
  if constexpr (kType == DrawType::kFloat16)
    return Float16Of(bits);
  else if constexpr (kType == DrawType::kBFloat16)
    return BFloat16Of(bits);
  else if constexpr (kType == DrawType::kBool)
    return bits != 0 ? 1 : 0;
  else
    return static_cast<typename DrawTraits<kType>::Stored>(bits);
}

// Computes an element of a row, before it is stored.
template <DrawType kType>
CF_DRAW typename DrawTraits<kType>::Bits ElementBits(const DrawnTensor& tensor, const DrawRow& row,
                                                     int64_t group, int64_t place, uint32_t word) {
  using Traits = DrawTraits<kType>;
  if (place == row.special_place) return static_cast<typename Traits::Bits>(row.special_bits);
  if constexpr (Traits::kIsReal) {
    return RealBits<typename Traits::Real>(tensor, row, place, word);
  } else {
    return static_cast<uint64_t>(IntegerOf(tensor, row, group, place, word));
  }
}

// Returns the row that gap elements are computed from. REQUIRES: tensor.gap_is_ordinary.
CF_DRAW DrawRow GapRowOf(const DrawnTensor& tensor, const DrawKey& key) {
  DrawRow row;
  row.form = tensor.gap.form;
  row.detail = tensor.gap.detail;
  row.scale = tensor.gap.scale;
  row.shift = tensor.gap.shift;
  row.key = key.rows;
  row.number = 0;
  row.seen = 0;
  row.special_place = -1;
  row.special_bits = 0;
  return row;
}

}  // namespace cudaforge::device
