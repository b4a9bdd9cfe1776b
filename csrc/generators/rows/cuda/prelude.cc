#include "generators/rows/cuda/prelude.h"

#include <string>

namespace cudaforge::rows {
namespace {

// Conversions use hardware instructions on a device and bit operations elsewhere, so that the text
// also runs on a host.
constexpr std::string_view kTypes = R"cuda(
#ifdef __CUDACC_RTC__
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
#define INT64_C(x) x##L
#endif
#define CF_DEVICE __device__ __forceinline__
#define CF_INF_F32 __int_as_float(0x7f800000)
#define CF_NAN_F32 __int_as_float(0x7fc00000)
#define CF_INF_F64 __longlong_as_double(0x7ff0000000000000LL)
#define CF_NAN_F64 __longlong_as_double(0x7ff8000000000000LL)

struct CfHalf { uint16_t bits; };
struct CfBFloat16 { uint16_t bits; };
struct CfBool { uint8_t bits; };

CF_DEVICE float cf_half_to_float(uint16_t h) {
#ifdef __CUDA_ARCH__
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
#else
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) return __int_as_float((int)(sign | 0x7f800000u | (magnitude << 13)));
  if (magnitude < 0x400u) {
    const float f = (float)magnitude * 5.9604644775390625e-8f;
    return sign ? -f : f;
  }
  return __int_as_float((int)(sign | ((magnitude << 13) + 0x38000000u)));
#endif
}

CF_DEVICE uint16_t cf_float_to_half(float f) {
#ifdef __CUDA_ARCH__
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
#else
  const uint32_t bits = (uint32_t)__float_as_int(f);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7fffu);
  if (magnitude >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    const float scaled = __int_as_float((int)magnitude) + 0.5f;
    return (uint16_t)(sign | ((uint32_t)__float_as_int(scaled) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
#endif
}

CF_DEVICE float cf_bfloat16_to_float(uint16_t h) { return __int_as_float((int)((uint32_t)h << 16)); }

CF_DEVICE uint16_t cf_float_to_bfloat16(float f) {
#ifdef __CUDA_ARCH__
  uint16_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
#else
  const uint32_t bits = (uint32_t)__float_as_int(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}

template <class T>
CF_DEVICE T cf_load(T x) { return x; }
CF_DEVICE float cf_load(CfHalf x) { return cf_half_to_float(x.bits); }
CF_DEVICE float cf_load(CfBFloat16 x) { return cf_bfloat16_to_float(x.bits); }
CF_DEVICE bool cf_load(CfBool x) { return x.bits != 0; }

template <class S>
struct CfStore {
  template <class T>
  static CF_DEVICE S From(T x) { return (S)x; }
};
template <>
struct CfStore<CfHalf> {
  template <class T>
  static CF_DEVICE CfHalf From(T x) { return CfHalf{cf_float_to_half((float)x)}; }
};
template <>
struct CfStore<CfBFloat16> {
  template <class T>
  static CF_DEVICE CfBFloat16 From(T x) { return CfBFloat16{cf_float_to_bfloat16((float)x)}; }
};
template <>
struct CfStore<CfBool> {
  template <class T>
  static CF_DEVICE CfBool From(T x) { return CfBool{(uint8_t)(x != (T)0)}; }
};

template <class S, int V>
struct alignas(sizeof(S) * V < 16 ? sizeof(S) * V : 16) CfVec { S v[V]; };

template <int kBytes> struct CfRaw { using Type = uint4; };
template <> struct CfRaw<1> { using Type = unsigned char; };
template <> struct CfRaw<2> { using Type = unsigned short; };
template <> struct CfRaw<4> { using Type = unsigned int; };
template <> struct CfRaw<8> { using Type = uint2; };

template <int V, class S>
CF_DEVICE CfVec<S, V> cf_zero() {
  CfVec<S, V> out;
  memset(&out, 0, sizeof(out));
  return out;
}

// Elements [p, p + V); p is a multiple of min(16, V * sizeof(S)) bytes.
template <int V, class S>
CF_DEVICE CfVec<S, V> cf_load_vector(const S* p) {
  constexpr int kPiece = sizeof(S) * V < 16 ? sizeof(S) * V : 16;
  using Raw = typename CfRaw<kPiece>::Type;
  CfVec<S, V> out;
#pragma unroll
  for (int i = 0; i < (int)sizeof(S) * V / kPiece; ++i) {
    const Raw raw = __ldg((const Raw*)p + i);
    memcpy((char*)&out + i * kPiece, &raw, kPiece);
  }
  return out;
}

// kGlobal: in global memory, with no piece taken apart, as the compiler does with some.
template <int V, bool kGlobal = false, class S>
CF_DEVICE void cf_store_vector(S* p, const CfVec<S, V>& x) {
  constexpr int kPiece = sizeof(S) * V < 16 ? sizeof(S) * V : 16;
  using Raw = typename CfRaw<kPiece>::Type;
#pragma unroll
  for (int i = 0; i < (int)sizeof(S) * V / kPiece; ++i) {
    Raw raw;
    memcpy(&raw, (const char*)&x + i * kPiece, kPiece);
    if constexpr (kGlobal) {
      __stwb((Raw*)p + i, raw);
    } else {
      *((Raw*)p + i) = raw;
    }
  }
}

// As above for positions [first, first + V) of a row; those outside [0, length) are read as zero or
// not written.
template <int V, class S, class I>
CF_DEVICE CfVec<S, V> cf_load_part(const S* p, I first, I length) {
  if (first >= 0 && first + V <= length) return cf_load_vector<V>(p);
  CfVec<S, V> out = cf_zero<V, S>();
#pragma unroll
  for (int k = 0; k < V; ++k) {
    if (first + k >= 0 && first + k < length) out.v[k] = p[k];
  }
  return out;
}

template <int V, class S, class I>
CF_DEVICE void cf_store_part(S* p, const CfVec<S, V>& x, I first, I length) {
  if (first >= 0 && first + V <= length) {
    cf_store_vector<V>(p, x);
    return;
  }
#pragma unroll
  for (int k = 0; k < V; ++k) {
    if (first + k >= 0 && first + k < length) p[k] = x.v[k];
  }
}
)cuda";

constexpr std::string_view kMath = R"cuda(
#define CF_FLOAT_1(name, f32, f64)                      \
  CF_DEVICE float cf_##name(float x) { return f32(x); } \
  CF_DEVICE double cf_##name(double x) { return f64(x); }
CF_FLOAT_1(exp, expf, exp)
CF_FLOAT_1(expm1, expm1f, expm1)
CF_FLOAT_1(log, logf, log)
CF_FLOAT_1(log1p, log1pf, log1p)
CF_FLOAT_1(log2, log2f, log2)
CF_FLOAT_1(sqrt, sqrtf, sqrt)
CF_FLOAT_1(rsqrt, rsqrtf, rsqrt)
CF_FLOAT_1(sin, sinf, sin)
CF_FLOAT_1(cos, cosf, cos)
CF_FLOAT_1(tanh, tanhf, tanh)
CF_FLOAT_1(erf, erff, erf)
CF_FLOAT_1(floor, floorf, floor)
CF_FLOAT_1(ceil, ceilf, ceil)
CF_FLOAT_1(round, rintf, rint)
CF_FLOAT_1(trunc, truncf, trunc)
#undef CF_FLOAT_1
CF_DEVICE float cf_reciprocal(float x) { return 1.0f / x; }
CF_DEVICE double cf_reciprocal(double x) { return 1.0 / x; }
CF_DEVICE float cf_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
CF_DEVICE double cf_sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
CF_DEVICE float cf_gelu(float x) { return x * 0.5f * (1.0f + cf_erf(x * 0.70710678f)); }
CF_DEVICE float cf_gelu_tanh(float x) {
  return x * 0.5f * (1.0f + cf_tanh(0.79788456f * (x + x * x * x * 0.044715f)));
}
CF_DEVICE double cf_gelu(double x) { return x * 0.5 * (1.0 + cf_erf(x * 0.70710678118654752)); }
CF_DEVICE double cf_gelu_tanh(double x) {
  return x * 0.5 * (1.0 + cf_tanh(0.79788456080286536 * (x + x * x * x * 0.044715)));
}
CF_DEVICE float cf_fmod(float x, float y) { return fmodf(x, y); }
CF_DEVICE double cf_fmod(double x, double y) { return fmod(x, y); }
CF_DEVICE float cf_atan2(float x, float y) { return atan2f(x, y); }
CF_DEVICE double cf_atan2(double x, double y) { return atan2(x, y); }
CF_DEVICE float cf_pow(float x, float y) { return powf(x, y); }
CF_DEVICE double cf_pow(double x, double y) { return pow(x, y); }

template <class T>
CF_DEVICE bool cf_isnan(T x) { return x != x; }
template <class T>
CF_DEVICE T cf_abs(T x) { return x < T(0) ? -x : x; }
CF_DEVICE float cf_abs(float x) { return fabsf(x); }
CF_DEVICE double cf_abs(double x) { return fabs(x); }
template <class T>
CF_DEVICE T cf_sign(T x) { return T((T(0) < x) - (x < T(0))); }
template <class T>
CF_DEVICE T cf_max(T x, T y) { return x != x ? x : (x < y || y != y ? y : x); }
template <class T>
CF_DEVICE T cf_min(T x, T y) { return x != x ? x : (y < x || y != y ? y : x); }

template <class T>
CF_DEVICE T cf_int_mod(T x, T y) {
  if (y == T(0)) return T(0);
  return y == T(-1) ? T(0) : x % y;
}
// Division by zero gives 0, and the most negative number over -1 wraps.
CF_DEVICE int32_t cf_div(int32_t x, int32_t y) {
  if (y == 0) return 0;
  return y == -1 ? (int32_t)(0u - (uint32_t)x) : x / y;
}
CF_DEVICE int64_t cf_div(int64_t x, int64_t y) {
  if (y == 0) return 0;
  return y == -1 ? (int64_t)(uint64_t(0) - (uint64_t)x) : x / y;
}
CF_DEVICE int32_t cf_fmod(int32_t x, int32_t y) { return cf_int_mod(x, y); }
CF_DEVICE int64_t cf_fmod(int64_t x, int64_t y) { return cf_int_mod(x, y); }
// The sign of the divisor, as in Python.
template <class T>
CF_DEVICE T cf_remainder(T x, T y) {
  const T m = cf_fmod(x, y);
  return m != T(0) && ((y < T(0)) != (m < T(0))) ? m + y : m;
}
template <class T>
CF_DEVICE T cf_int_pow(T x, T y) {
  if (y < 0) return x == 1 ? T(1) : x == -1 ? (y % 2 != 0 ? T(-1) : T(1)) : T(0);
  T result = 1;
  for (; y != 0; y /= 2) {
    if (y % 2 != 0) result *= x;
    x *= x;
  }
  return result;
}
CF_DEVICE int32_t cf_pow(int32_t x, int32_t y) { return cf_int_pow(x, y); }
CF_DEVICE int64_t cf_pow(int64_t x, int64_t y) { return cf_int_pow(x, y); }
// The conversions of two values are quicker than those of one.
CF_DEVICE float cf_round_to_half(float x) {
#ifdef __CUDA_ARCH__
  uint32_t low;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(low) : "f"(0.0f), "f"(x));
  return cf_half_to_float((uint16_t)low);
#else
  return cf_half_to_float(cf_float_to_half(x));
#endif
}
CF_DEVICE float cf_round_to_bf16(float x) {
#ifdef __CUDA_ARCH__
  uint32_t high;  // its upper half; the lower is zero
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(x), "f"(0.0f));
  return __int_as_float((int)high);
#else
  return cf_bfloat16_to_float(cf_float_to_bfloat16(x));
#endif
}
)cuda";

}  // namespace

std::string_view CudaPrelude() {
  static const std::string text =
      std::string(kTypes) + std::string(kMath) + std::string(CudaGroupPrelude());
  return text;
}

}  // namespace cudaforge::rows
