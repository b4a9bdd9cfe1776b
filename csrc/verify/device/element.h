// Elements as bits: special values, octave, value.
#pragma once

#include "verify/device/portable.h"

namespace cudaforge::device {

// The order is DType's (signature/op_signature.h).
enum class ElementKind : int { kFloat32, kFloat16, kBFloat16, kFloat64, kInt64, kInt32, kBool };

// Branch-free.
CF_DEVICE float Absolute(float value) {
  return BitCast<float>(BitCast<uint32_t>(value) & 0x7fffffffu);
}
CF_DEVICE double Absolute(double value) {
  return BitCast<double>(BitCast<uint64_t>(value) & 0x7fffffffffffffffu);
}

// 2^-octave. REQUIRES: an octave of normal numbers of the type.
CF_DEVICE float PowerOfMinus(int octave, float) {
  const int exponent = 127 - octave;
  return BitCast<float>(exponent > 0 ? static_cast<uint32_t>(exponent) << 23 : 0x00400000u);
}
CF_DEVICE double PowerOfMinus(int octave, double) {
  const int exponent = 1023 - octave;
  return BitCast<double>(exponent > 0 ? static_cast<uint64_t>(exponent) << 52
                                      : 0x0008000000000000u);
}

// A binary floating format. `Real` represents its values exactly; differences are rounded to it.
template <typename BitsType, typename RealType, int kExponentBits, int kFractionBits>
struct FloatElement {
  using Bits = BitsType;
  using Real = RealType;

  CF_DEVICE static int Exponent(Bits bits) {
    return static_cast<int>(bits >> kFractionBits) & ((1 << kExponentBits) - 1);
  }
  // NaN or an infinity.
  CF_DEVICE static bool IsSpecial(Bits bits) { return Exponent(bits) == (1 << kExponentBits) - 1; }
  CF_DEVICE static bool IsNan(Bits bits) {
    return IsSpecial(bits) && (bits & ((Bits{1} << kFractionBits) - 1)) != 0;
  }
  CF_DEVICE static bool IsZero(Bits bits) { return static_cast<Bits>(bits << 1) == 0; }
  // floor(log2 |value|) of a finite value. Denormal numbers count as the lowest normal octave.
  CF_DEVICE static int Octave(Bits bits) { return OctaveOfExponent(Exponent(bits)); }
  CF_DEVICE static int OctaveOfExponent(int exponent) {
    return (exponent == 0 ? 1 : exponent) - ((1 << (kExponentBits - 1)) - 1);
  }
  // One above the largest result of Exponent.
  CF_DEVICE static constexpr int Exponents() { return 1 << kExponentBits; }
};

template <ElementKind kKind>
struct Element;

template <>
struct Element<ElementKind::kFloat32> : FloatElement<uint32_t, float, 8, 23> {
  CF_DEVICE static float Value(uint32_t bits) { return BitCast<float>(bits); }
};

template <>
struct Element<ElementKind::kFloat64> : FloatElement<uint64_t, double, 11, 52> {
  CF_DEVICE static double Value(uint64_t bits) { return BitCast<double>(bits); }
};

template <>
struct Element<ElementKind::kBFloat16> : FloatElement<uint16_t, float, 8, 7> {
  CF_DEVICE static float Value(uint16_t bits) {
    return BitCast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

template <>
struct Element<ElementKind::kFloat16> : FloatElement<uint16_t, float, 5, 10> {
  // For a finite value: its exponent's bias is 112 less than float32's.
  CF_DEVICE static float Value(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    const uint32_t magnitude = bits & 0x7fff;
    const uint32_t normal = (magnitude << 13) + (112u << 23);
    const auto denormal = BitCast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
    return BitCast<float>(sign | (magnitude < 0x400 ? denormal : normal));
  }
};

// Integers, as numbers in double precision (rounded beyond 2^53).
template <typename BitsType, typename SignedType>
struct IntegerElement {
  using Bits = BitsType;
  using Real = double;
  CF_DEVICE static bool IsSpecial(Bits) { return false; }
  CF_DEVICE static bool IsNan(Bits) { return false; }
  CF_DEVICE static bool IsZero(Bits bits) { return bits == 0; }
  CF_DEVICE static double Value(Bits bits) {
    return static_cast<double>(static_cast<SignedType>(bits));
  }
  CF_DEVICE static int Octave(Bits bits) {
    return Element<ElementKind::kFloat64>::Octave(BitCast<uint64_t>(Value(bits)));
  }
};

template <>
struct Element<ElementKind::kInt64> : IntegerElement<uint64_t, int64_t> {};
template <>
struct Element<ElementKind::kInt32> : IntegerElement<uint32_t, int32_t> {};

// A candidate may write any byte: nonzero is true, as in verify/elements.h.
template <>
struct Element<ElementKind::kBool> : IntegerElement<uint8_t, int8_t> {
  CF_DEVICE static double Value(uint8_t bits) { return bits != 0 ? 1.0 : 0.0; }
  CF_DEVICE static int Octave(uint8_t) { return 0; }
};

// Runs body(Constant<ElementKind, kind>()) for a kind known at run time.
template <typename Body>
CF_DEVICE void WithElementKind(ElementKind kind, const Body& body) {
  switch (kind) {
    case ElementKind::kFloat32:
      return body(Constant<ElementKind, ElementKind::kFloat32>());
    case ElementKind::kFloat16:
      return body(Constant<ElementKind, ElementKind::kFloat16>());
    case ElementKind::kBFloat16:
      return body(Constant<ElementKind, ElementKind::kBFloat16>());
    case ElementKind::kFloat64:
      return body(Constant<ElementKind, ElementKind::kFloat64>());
    case ElementKind::kInt64:
      return body(Constant<ElementKind, ElementKind::kInt64>());
    case ElementKind::kInt32:
      return body(Constant<ElementKind, ElementKind::kInt32>());
    case ElementKind::kBool:
      return body(Constant<ElementKind, ElementKind::kBool>());
  }
}

}  // namespace cudaforge::device
