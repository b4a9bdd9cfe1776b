// The numbers of each DrawForm: functions of a row and of 32 random bits. Only integer and exactly
// rounded operations are used, so every device gives the same bits. Real is float (for all floating
// dtypes up to 32 bits) or double.
#pragma once

#include "verify/device/drawn_tensor.h"

namespace cudaforge::device {

// Never fused: files that include this are compiled with -ffp-contract=off.
#ifdef __CUDACC_RTC__
CF_DRAW float Times(float a, float b) { return __fmul_rn(a, b); }
CF_DRAW double Times(double a, double b) { return __dmul_rn(a, b); }
CF_DRAW float Plus(float a, float b) { return __fadd_rn(a, b); }
CF_DRAW double Plus(double a, double b) { return __dadd_rn(a, b); }
#else
CF_DRAW float Times(float a, float b) { return a * b; }
CF_DRAW double Times(double a, double b) { return a * b; }
CF_DRAW float Plus(float a, float b) { return a + b; }
CF_DRAW double Plus(double a, double b) { return a + b; }
#endif

template <typename Real>
struct RealTraits;
template <>
struct RealTraits<float> {
  using Bits = uint32_t;
  enum : Bits {
    kSign = 0x80000000u,
    kInfinity = 0x7f800000u,
    kQuiet = 0x7fc00000u,
    kPayload = 0x2aaaaau
  };
};
template <>
struct RealTraits<double> {
  using Bits = uint64_t;
  enum : Bits {
    kSign = 0x8000000000000000u,
    kInfinity = 0x7ff0000000000000u,
    kQuiet = 0x7ff8000000000000u,
    kPayload = 0x5555555555555u
  };
};

// The values that the elements of a row share.
struct DrawRow {
  DrawForm form;
  int detail;
  double scale, shift;
  uint64_t key;
  int64_t number;
  int64_t seen;           // kMask, kMaskBits: the one place that some patterns do not mask
  int64_t special_place;  // in the group; -1: none
  uint64_t special_bits;  // as in DrawSpot
};

// The reciprocal deviation of the sum of four bytes and a fraction.
CF_DRAW constexpr double NormalUnit() { return 0x1.bb6854ccc3c4dp-8; }

// Returns four random bits that are independent of the value's.
CF_DRAW uint32_t Decide(uint32_t word) { return (word * 0x2c1b3c6du) >> 28; }

CF_DRAW uint32_t WhichListed(const DrawnTensor& tensor, const DrawRow& row, int64_t place,
                             uint32_t word) {
  const uint32_t next = (static_cast<uint32_t>(place) + (tensor.rotation >> 8)) & 31;
  return row.detail != 0 ? next : (word * 0x9e3779b1u) >> 27;
}

// Returns 0 for one word in two, 1 for one in four, and so on up to 23.
CF_DRAW uint32_t Halvings(uint32_t word) {
  const auto upper = static_cast<int32_t>(word >> 9);
  return 149 - (BitCast<uint32_t>(static_cast<float>(upper | 1)) >> 23);
}

// Returns the distance of a kNextAbove number from its row's, in steps of its dtype. In half of the
// rows, one half of the numbers has distance 0, a quarter 1, and so on: large ones are rare. In the
// others, the distance is up to 15 steps, or 2^16 in float32 and float64.
CF_DRAW uint32_t StepsAbove(const DrawRow& row, uint32_t word) {
  const uint32_t h = Mix32(word + 0x85ebca6bu);
  if ((row.key & 2) == 0) return Halvings(h);
  return h >> (row.detail == 0 && (row.key & 4) != 0 ? 16 : 28);
}

CF_DRAW uint32_t SumOfBytes(uint32_t word) {
  const uint32_t pairs = (word & 0x00ff00ffu) + ((word >> 8) & 0x00ff00ffu);
  return (pairs + (pairs >> 16)) & 0x7ffu;
}

// In [-510.5, 510.5]: the sum of four uniform bytes, nearly normal. A fraction makes every bit of
// the significand random.
template <typename Real>
CF_DRAW Real AboutNormal(uint32_t word) {
  if constexpr (sizeof(Real) == 4) {
    const auto fixed =
        static_cast<int32_t>((SumOfBytes(word) << 20) | ((word * 0x9e3779b1u) >> 12));
    return Times(static_cast<float>(fixed - ((510 << 20) + (1 << 19))), 0x1p-20f);
  } else {
    const auto fixed = static_cast<int64_t>((static_cast<uint64_t>(SumOfBytes(word)) << 43) |
                                            (Spread64(word) >> 21));
    return Times(static_cast<double>(fixed - ((int64_t{510} << 43) + (int64_t{1} << 42))), 0x1p-43);
  }
}

// [0, 1).
template <typename Real>
CF_DRAW Real Uniform(uint32_t word) {
  if constexpr (sizeof(Real) == 4) {
    return Times(static_cast<float>(static_cast<int32_t>(word >> 8)), 0x1p-24f);
  } else {
    return Times(static_cast<double>(static_cast<int64_t>(Spread64(word) >> 11)), 0x1p-53);
  }
}

template <typename Real>
CF_DRAW Real RealOf(typename RealTraits<Real>::Bits bits) {
  return BitCast<Real>(bits);
}

template <typename Real>
CF_DRAW Real WithSign(Real magnitude, uint32_t negative) {
  using Bits = typename RealTraits<Real>::Bits;
  const Bits sign = negative != 0 ? static_cast<Bits>(RealTraits<Real>::kSign) : Bits{0};
  return RealOf<Real>(BitCast<Bits>(magnitude) ^ sign);
}

// 2^exponent. REQUIRES: -126 <= exponent <= 127.
template <typename Real>
CF_DRAW Real PowerOf2(int exponent) {
  using Bits = typename RealTraits<Real>::Bits;
  if constexpr (sizeof(Real) == 4)
    return RealOf<float>(static_cast<Bits>(127 + exponent) << 23);
  else
    return RealOf<double>(static_cast<Bits>(1023 + exponent) << 52);
}

// NaN: plain, with the sign, with a payload, of all ones.
template <typename Real>
CF_DRAW typename RealTraits<Real>::Bits NanBits(uint32_t which) {
  using Traits = RealTraits<Real>;
  using Bits = typename Traits::Bits;
  Bits bits = Traits::kQuiet;
  if ((which & 3) == 1) bits |= static_cast<Bits>(Traits::kSign);
  if ((which & 3) == 2) bits |= static_cast<Bits>(Traits::kPayload);
  return (which & 3) == 3 ? static_cast<Bits>(~Bits{0}) : bits;
}

template <typename Real>
CF_DRAW typename RealTraits<Real>::Bits SpecialBits(SpecialKind kind, uint32_t word) {
  using Traits = RealTraits<Real>;
  using Bits = typename Traits::Bits;
  const Bits infinity = Traits::kInfinity, sign = Traits::kSign;
  const Bits either = infinity | ((word & 16) != 0 ? sign : Bits{0});
  switch (kind) {
    case SpecialKind::kNan:
      return NanBits<Real>(word >> 5);
    case SpecialKind::kPlus:
      return infinity;
    case SpecialKind::kMinus:
      return infinity | sign;
    case SpecialKind::kEither:
      return either;
    case SpecialKind::kAll:
      break;
  }
  return (word & 32) != 0 ? NanBits<Real>(word >> 6) : either;
}

// Returns true if a mask hides this key of its row. Patterns: none, keys before the middle, keys
// after it, some, all but one, or all.
CF_DRAW bool MaskHides(uint32_t pattern, int64_t seen, int64_t place, int64_t length,
                       uint32_t word) {
  switch (pattern) {
    case 1:
      return place < length / 2;
    case 2:
      return place > length / 2;
    case 3:
      return (word & 0xc00u) == 0 && place != seen;
    case 4:
    case 6:
      return place != seen;
    case 5:
    case 7:
      return true;
    default:
      return false;
  }
}

// Returns the number added to a score: -infinity masks a key, in two patterns the dtype's lowest
// number. A constant for all keys is mostly ordinary.
template <typename Real>
CF_DRAW typename RealTraits<Real>::Bits MaskBitsOf(const DrawnTensor& tensor, const DrawRow& row,
                                                   int64_t place, uint32_t word) {
  using Traits = RealTraits<Real>;
  using Bits = typename Traits::Bits;
  const Real value = Times(AboutNormal<Real>(word), static_cast<Real>(NormalUnit()));
  uint32_t pattern = (static_cast<uint32_t>(row.number) + tensor.rotation) & 7;
  if (tensor.length < 2) pattern = pattern == 5 ? 5 : 0;
  const Bits sign = Traits::kSign;
  Bits hides = Traits::kInfinity;
  if (pattern >= 6) hides = BitCast<Bits>(static_cast<Real>(row.scale));
  hides |= sign;
  // Sums with float16's lowest number lose bits of the scores, depending on the order.
  if (pattern == 7 && tensor.type == DrawType::kFloat16) pattern = 0;
  return MaskHides(pattern, row.seen, place, tensor.length, word) ? hides : BitCast<Bits>(value);
}

template <typename Real>
CF_DRAW typename RealTraits<Real>::Bits DenormalBits(const DrawnTensor& tensor, uint32_t word) {
  using Bits = typename RealTraits<Real>::Bits;
  const uint32_t steps = (word >> 8) % 1000;
  if (tensor.type == DrawType::kFloat16) {
    return BitCast<Bits>(
        WithSign(Times(static_cast<Real>(static_cast<int32_t>(steps)), static_cast<Real>(0x1p-24)),
                 word & 1));
  }
  const Bits sign = (word & 1) != 0 ? static_cast<Bits>(RealTraits<Real>::kSign) : Bits{0};
  if (tensor.type == DrawType::kFloat32 && (word & 2) != 0)
    return sign | (word >> 9);  // of any size
  const uint32_t kept = tensor.type == DrawType::kBFloat16 ? steps % 127 : steps;
  return sign | (static_cast<Bits>(kept) << tensor.denormal_shift);
}

// Returns the bits of an element. REQUIRES: a form of floating dtypes.
template <DrawForm kForm, typename Real>
CF_DRAW typename RealTraits<Real>::Bits FormBits(const DrawnTensor& tensor, const DrawRow& row,
                                                 int64_t place, uint32_t word) {
  using Form = DrawForm;
  using Bits = typename RealTraits<Real>::Bits;
  const auto scale = static_cast<Real>(row.scale), shift = static_cast<Real>(row.shift);
  const Real zero = 0;
  if constexpr (kForm == Form::kMask) return MaskBitsOf<Real>(tensor, row, place, word);
  if constexpr (kForm == Form::kConstant) return BitCast<Bits>(shift);
  if constexpr (kForm == Form::kUniform) {
    return BitCast<Bits>(Plus(Times(Uniform<Real>(word), scale), shift));
  }
  if constexpr (kForm == Form::kMagnitude) {
    const Real magnitude =
        Plus(Times(Uniform<Real>(word), static_cast<Real>(1.1)), static_cast<Real>(0.5));
    return BitCast<Bits>(WithSign(magnitude, word & 1));
  }
  if constexpr (kForm == Form::kIntegers) {
    const auto range = static_cast<uint32_t>(row.scale);  // at most 65,536
    return BitCast<Bits>(
        Plus(static_cast<Real>(static_cast<int32_t>(((word >> 16) * range) >> 16)), shift));
  }
  if constexpr (kForm == Form::kRowConstant) {
    const auto steps = static_cast<int32_t>(((row.key >> 32) * 31u) >> 32) - 15;
    return BitCast<Bits>(Times(static_cast<Real>(steps), static_cast<Real>(0.25)));
  }
  if constexpr (kForm == Form::kOneHot) {
    const auto hot = BelowOf(row.key, static_cast<uint64_t>(tensor.length));
    return BitCast<Bits>(place == static_cast<int64_t>(hot) ? static_cast<Real>(1) : zero);
  }
  if constexpr (kForm == Form::kZeros) return BitCast<Bits>(WithSign(zero, word & 1));
  if constexpr (kForm == Form::kDenormals) return DenormalBits<Real>(tensor, word);
  if constexpr (kForm == Form::kNearEdges) {
    const auto steps = static_cast<Real>(static_cast<int32_t>(1 + (word >> 29)));
    const Real small = Times(steps, scale);
    const Real one = 1;
    const bool low = (word & 2) != 0;
    if (row.detail == 2) {
      return BitCast<Bits>(low ? WithSign(small, 1) : WithSign(Plus(steps, one), 1));
    }
    const Real near_one = Plus(one, WithSign(small, 1));
    if (row.detail == 1) return BitCast<Bits>(WithSign(near_one, word & 1));
    return BitCast<Bits>(low ? small : near_one);
  }
  if constexpr (kForm == Form::kListed)
    return static_cast<Bits>(tensor.list[WhichListed(tensor, row, place, word)]);
  if constexpr (kForm == Form::kAnyExponent) {
    const auto from = static_cast<uint32_t>(row.shift), count = static_cast<uint32_t>(row.scale);
    const uint32_t exponent = from + (((word >> 16) * count) >> 16);
    const Bits sign = (word & 1) != 0 ? static_cast<Bits>(RealTraits<Real>::kSign) : Bits{0};
    if constexpr (sizeof(Real) == 4)
      return sign | (exponent << 23) | (Mix32(word) >> 9);
    else
      return sign | (static_cast<Bits>(exponent) << 52) | (Spread64(word) >> 12);
  }
  if constexpr (kForm == Form::kNextAbove) {
    const auto at = static_cast<Real>(static_cast<int32_t>(16 + ((row.key >> 8) & 15)));
    const auto power = static_cast<int>((row.key >> 16) & 7) - 6;
    const Real least = WithSign(Times(at, PowerOf2<Real>(power)), row.key & 1);
    return BitCast<Bits>(least) + (static_cast<Bits>(StepsAbove(row, word)) << row.detail);
  }
  uint32_t drawn = word;
  if constexpr (kForm == Form::kAlike) {
    const auto length = static_cast<uint64_t>(tensor.length);
    const auto which = static_cast<uint32_t>(row.key) & 7;
    const auto any = static_cast<int64_t>(BelowOf(row.key, length));
    const int64_t odd = which == 0 ? 0 : which == 1 ? tensor.length - 1 : which == 2 ? any : -1;
    const bool quarter = which == 3 && place >= tensor.length - (tensor.length >> 2);
    if (place != odd && !quarter) {
      drawn = Mix32(static_cast<uint32_t>(place) * 0x9e3779b9u + tensor.rotation);
    }
  }
  if constexpr (kForm == Form::kCancelling) {
    drawn = Mix32(static_cast<uint32_t>(row.key) + static_cast<uint32_t>(place >> 1) * 0x9e3779b9u);
  }
  Real value = Times(AboutNormal<Real>(drawn), scale);
  if constexpr (kForm == Form::kCancelling) {
    value = WithSign(value, static_cast<uint32_t>(place) & 1);
  }
  if constexpr (kForm == Form::kLastTenth) {
    value = Times(value, place >= tensor.tenth ? static_cast<Real>(256) : static_cast<Real>(1));
  }
  if constexpr (kForm == Form::kWide) {
    value = Times(value, PowerOf2<Real>(static_cast<int>(Decide(word)) - 8));
  }
  if constexpr (kForm == Form::kPosition) {
    value = Plus(value, Times(static_cast<Real>(static_cast<int32_t>(place & 255)),
                              static_cast<Real>(0x1p-4)));
  }
  if constexpr (kForm == Form::kSparse) value = Decide(word) == 0 ? value : zero;
  if constexpr (kForm == Form::kFirstLarge) return BitCast<Bits>(place == 0 ? shift : value);
  if constexpr (kForm == Form::kSomeZeros) {
    return BitCast<Bits>(Decide(word) < 4 ? WithSign(zero, word & 1) : value);
  }
  if constexpr (kForm == Form::kSomeDenormals) {
    return Decide(word) < 4 ? DenormalBits<Real>(tensor, word) : BitCast<Bits>(value);
  }
  if constexpr (kForm == Form::kManySpecial) {
    return Decide(word) < 2 ? SpecialBits<Real>(static_cast<SpecialKind>(row.detail), word)
                            : BitCast<Bits>(value);
  }
  return BitCast<Bits>(Plus(value, shift));
}

}  // namespace cudaforge::device
