#include "generators/rows/cpu/prelude.h"

namespace cudaforge::rows {
namespace {

// Scalar functions (cf_exp, cf_max, ...) of scalar_op.h, and loads and stores of half types.
const char* CpuMathPrelude() {
  return R"cpu(#pragma GCC optimize("O3,no-trapping-math,no-math-errno")
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#define CF_INLINE static inline __attribute__((always_inline))
#define CF_INLINE_MEMBER inline __attribute__((always_inline))
#define CF_INF_F32 __builtin_inff()
#define CF_NAN_F32 __builtin_nanf("")
#define CF_INF_F64 __builtin_inf()
#define CF_NAN_F64 __builtin_nan("")

CF_INLINE int32_t cf_bits(float x) { return __builtin_bit_cast(int32_t, x); }
CF_INLINE float cf_float(int32_t x) { return __builtin_bit_cast(float, x); }
CF_INLINE float cf_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

CF_INLINE float cf_from_bf16(uint16_t h) { return cf_float(int32_t(uint32_t(h) << 16)); }
CF_INLINE uint16_t cf_to_bf16(float x) {
  const uint32_t b = uint32_t(cf_bits(x));
  const uint32_t rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
  const uint32_t nan = (b >> 16) | 0x40u;
  return uint16_t((b & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}
CF_INLINE float cf_from_f16(uint16_t h) {
  const uint32_t magnitude = uint32_t(h & 0x7fffu) << 13;
  // Exponents differ by 112; the product is exact, and makes denormals normal.
  const uint32_t finite = uint32_t(cf_bits(cf_float(int32_t(magnitude)) * 0x1p112f));
  const uint32_t special = magnitude | 0x7f800000u;
  const uint32_t bits = (h & 0x7c00u) == 0x7c00u ? special : finite;
  return cf_float(int32_t(bits | (uint32_t(h & 0x8000u) << 16)));
}
CF_INLINE uint16_t cf_to_f16(float x) {
  const uint32_t b = uint32_t(cf_bits(x));
  const uint32_t a = b & 0x7fffffffu;
  const uint32_t sign = (b >> 16) & 0x8000u;
  const uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
  // Adding 0.5 leaves the denormal's bits, rounded to nearest even, at the bottom of the sum.
  const uint32_t denormal = uint32_t(cf_bits(cf_float(int32_t(a)) + 0.5f)) - 0x3f000000u;
  uint32_t r = a < 0x38800000u ? denormal : normal;
  r = a >= 0x477ff000u ? 0x7c00u : r;
  r = a > 0x7f800000u ? (0x7e00u | ((a >> 13) & 0x3ffu)) : r;
  return uint16_t(r | sign);
}
CF_INLINE float cf_round_to_half(float x) { return cf_from_f16(cf_to_f16(x)); }
CF_INLINE float cf_round_to_bf16(float x) { return cf_from_bf16(cf_to_bf16(x)); }

CF_INLINE float cf_exp(float x) {
  const float t = cf_fma(x, 0x1.715476p+0f, 0x1.8p+23f);
  const float n = t - 0x1.8p+23f;
  float r = cf_fma(n, -0x1.62e400p-1f, x);
  r = cf_fma(n, -0x1.7f7d1cp-20f, r);
  float q = 0x1.6dbc74p-10f;
  q = cf_fma(q, r, 0x1.124154p-7f);
  q = cf_fma(q, r, 0x1.555454p-5f);
  q = cf_fma(q, r, 0x1.555486p-3f);
  q = cf_fma(q, r, 0.5f);
  const float p = cf_fma(q, r * r, r) + 1.0f;
  // 2^k in two factors, straight from the low bits of t; nonsense out of range, where it is not
  // used.
  const uint32_t b = uint32_t(cf_bits(t));
  const uint32_t half = (b << 22) & 0xff800000u;
  const float scaled = p * cf_float(int32_t(half + 0x3f800000u)) * cf_float(int32_t((b << 23) - half + 0x3f800000u));
  const float high = x > 88.8f ? CF_INF_F32 : scaled;
  return x < -104.5f ? 0.0f : high;
}
CF_INLINE float cf_expm1(float x) {
  float y = x > 88.8f ? 88.8f : x;  // 2^k stays below 2^129
  y = y < -20.0f ? -20.0f : y;
  const float t = cf_fma(y, 0x1.715476p+0f, 0x1.8p+23f);
  const float n = t - 0x1.8p+23f;
  float r = cf_fma(n, -0x1.62e400p-1f, y);
  r = cf_fma(n, -0x1.7f7d1cp-20f, r);
  float q = 0x1.a1a614p-13f;
  q = cf_fma(q, r, 0x1.6d7ba2p-10f);
  q = cf_fma(q, r, 0x1.11108cp-7f);
  q = cf_fma(q, r, 0x1.5554a6p-5f);
  q = cf_fma(q, r, 0x1.555556p-3f);
  q = cf_fma(q, r, 0.5f);
  const float p = cf_fma(q, r * r, r);
  const int32_t k = cf_bits(t) - 0x4b400000;
  const float s = cf_float((k + 126) << 23);  // half of 2^k, which may be out of range
  const float scaled = cf_fma(p, s, s - 0.5f) * 2.0f;
  return (x < 0x1p-25f) & (x > -0x1p-25f) ? x : scaled;
}
struct CfLog { float e, f, tail; };  // x = 2^e * (1 + f); log(1 + f) = f + tail
CF_INLINE CfLog cf_log_parts(float x) {
  const bool tiny = x < 0x1p-126f;
  const float y = tiny ? x * 0x1p+25f : x;
  const int32_t b = cf_bits(y);
  const int32_t k = (b - 0x3f3504f3) >> 23;
  const float f = cf_float(b - (k << 23)) - 1.0f;
  float q = 0x1.1b51a0p-4f;
  q = cf_fma(q, f, -0x1.e2ff2cp-4f);
  q = cf_fma(q, f, 0x1.e655a4p-4f);
  q = cf_fma(q, f, -0x1.fb401ep-4f);
  q = cf_fma(q, f, 0x1.23323cp-3f);
  q = cf_fma(q, f, -0x1.5562f4p-3f);
  q = cf_fma(q, f, 0x1.99a54cp-3f);
  q = cf_fma(q, f, -0x1.ffffeep-3f);
  q = cf_fma(q, f, 0x1.555546p-2f);
  const float s = f * f;
  return {float(k) - (tiny ? 25.0f : 0.0f), f, cf_fma(q, s * f, -0.5f * s)};
}
CF_INLINE float cf_log_special(float x, float r) {
  r = x == 0.0f ? -CF_INF_F32 : r;
  r = x < 0.0f ? CF_NAN_F32 : r;
  return (x == CF_INF_F32) | (x != x) ? x : r;
}
CF_INLINE float cf_log(float x) {
  const CfLog l = cf_log_parts(x);
  const float low = cf_fma(l.e, 0x1.7f7d1cp-20f, l.tail) + l.f;
  return cf_log_special(x, cf_fma(l.e, 0x1.62e400p-1f, low));
}
CF_INLINE float cf_log2(float x) {
  const CfLog l = cf_log_parts(x);
  // log2(e) = 1 + 0.4427: the leading term stays exact.
  const float sum = l.f + l.tail;
  const float lost = (l.f - sum) + l.tail;
  const float low = cf_fma(sum, 0x1.c551d9p-2f, lost);
  return cf_log_special(x, l.e + (sum + low));
}
CF_INLINE float cf_log1p(float x) {
  const float u = 1.0f + x;
  const float d = u - x;  // what rounding of u lost, whichever of 1 and x is larger
  const float lost = x < 1.0f ? x - (u - 1.0f) : 1.0f - d;
  const CfLog l = cf_log_parts(u);
  const float low = cf_fma(l.e, 0x1.7f7d1cp-20f, l.tail + lost / u) + l.f;
  const float r = cf_fma(l.e, 0x1.62e400p-1f, low);
  const float y = cf_log_special(u, r);
  return (x < 0x1p-25f) & (x > -0x1p-25f) ? x : y;
}
CF_INLINE float cf_tanh(float x) {
  const float a = __builtin_fabsf(x);
  const float s = x * x;
  float p = 0x1.246dfcp-9f;
  p = cf_fma(p, s, -0x1.0ee55cp-7f);
  p = cf_fma(p, s, 0x1.6418d8p-6f);
  p = cf_fma(p, s, -0x1.b9fa8ap-5f);
  p = cf_fma(p, s, 0x1.11109ep-3f);
  p = cf_fma(p, s, -0x1.555554p-2f);
  const float small = cf_fma(p * s, x, x);
  const float capped = a > 10.0f ? 10.0f : a;
  const float large = __builtin_copysignf(1.0f - 2.0f / (cf_exp(2.0f * capped) + 1.0f), x);
  return a < 0.6f ? small : large;
}
CF_INLINE float cf_erf(float x) {
  const float a = __builtin_fabsf(x);
  const float s = x * x;
  float p = -0x1.44cfbep-17f;
  p = cf_fma(p, s, 0x1.d8b88ep-14f);
  p = cf_fma(p, s, -0x1.bcd7dep-11f);
  p = cf_fma(p, s, 0x1.562b1ap-8f);
  p = cf_fma(p, s, -0x1.b829d8p-6f);
  p = cf_fma(p, s, 0x1.ce2f0ap-4f);
  p = cf_fma(p, s, -0x1.812746p-2f);
  p = cf_fma(p, s, 0x1.06eba8p-3f);
  const float small = cf_fma(p, x, x);
  const float t = a > 4.0f ? 4.0f : a;
  float q = 0x1.218822p-18f;  // erfc(t) = exp(-t - t * q(t))
  q = cf_fma(q, t, -0x1.3e319ap-15f);
  q = cf_fma(q, t, -0x1.749eccp-14f);
  q = cf_fma(q, t, 0x1.8e630cp-9f);
  q = cf_fma(q, t, -0x1.766a76p-6f);
  q = cf_fma(q, t, 0x1.afdb04p-4f);
  q = cf_fma(q, t, 0x1.456508p-1f);
  q = cf_fma(q, t, 0x1.07504ep-3f);
  const float large = __builtin_copysignf(1.0f - cf_exp(cf_fma(-q, t, -t)), x);
  const float r = a < 1.0f ? small : large;
  return x != x ? x : r;
}
CF_INLINE float cf_sigmoid(float x) { return 1.0f / (1.0f + cf_exp(-x)); }
CF_INLINE float cf_gelu(float x) { return x * 0.5f * (1.0f + cf_erf(x * 0.70710678f)); }
CF_INLINE float cf_gelu_tanh(float x) {
  return x * 0.5f * (1.0f + cf_tanh(0.79788456f * (x + x * x * x * 0.044715f)));
}
CF_INLINE float cf_sqrt(float x) { return __builtin_sqrtf(x); }
CF_INLINE float cf_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
CF_INLINE float cf_sin(float x) { return std::sin(x); }
CF_INLINE float cf_cos(float x) { return std::cos(x); }
CF_INLINE float cf_floor(float x) { return __builtin_floorf(x); }
CF_INLINE float cf_ceil(float x) { return __builtin_ceilf(x); }
CF_INLINE float cf_round(float x) { return __builtin_rintf(x); }
CF_INLINE float cf_trunc(float x) { return __builtin_truncf(x); }

CF_INLINE double cf_exp(double x) { return std::exp(x); }
CF_INLINE double cf_expm1(double x) { return std::expm1(x); }
CF_INLINE double cf_log(double x) { return std::log(x); }
CF_INLINE double cf_log1p(double x) { return std::log1p(x); }
CF_INLINE double cf_log2(double x) { return std::log2(x); }
CF_INLINE double cf_tanh(double x) { return std::tanh(x); }
CF_INLINE double cf_erf(double x) { return std::erf(x); }
CF_INLINE double cf_sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
CF_INLINE double cf_gelu(double x) { return x * 0.5 * (1.0 + cf_erf(x * 0.70710678118654752)); }
CF_INLINE double cf_gelu_tanh(double x) {
  return x * 0.5 * (1.0 + cf_tanh(0.79788456080286536 * (x + x * x * x * 0.044715)));
}
CF_INLINE double cf_sqrt(double x) { return __builtin_sqrt(x); }
CF_INLINE double cf_rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
CF_INLINE double cf_sin(double x) { return std::sin(x); }
CF_INLINE double cf_cos(double x) { return std::cos(x); }
CF_INLINE double cf_floor(double x) { return __builtin_floor(x); }
CF_INLINE double cf_ceil(double x) { return __builtin_ceil(x); }
CF_INLINE double cf_round(double x) { return __builtin_rint(x); }
CF_INLINE double cf_trunc(double x) { return __builtin_trunc(x); }

// The same for every type. An integer is never NaN, and its comparisons fold away. The first NaN
// stays.
template <typename T> CF_INLINE bool cf_isnan(T x) { return x != x; }
template <typename T> CF_INLINE T cf_max(T x, T y) {
  const T t = y <= x ? x : y;
  return x != x ? x : t;
}
template <typename T> CF_INLINE T cf_min(T x, T y) {
  const T t = y >= x ? x : y;
  return x != x ? x : t;
}
// ok ? x : other without a branch, so that what gives x stays unconditional and its loop
// vectorises.
template <typename B, typename T> CF_INLINE T cf_blend(bool ok, T x, T other) {
  const B mask = B(0) - B(ok);
  return __builtin_bit_cast(T, B((__builtin_bit_cast(B, x) & mask) | (__builtin_bit_cast(B, other) & ~mask)));
}
CF_INLINE float cf_select(bool ok, float x, float y) { return cf_blend<uint32_t>(ok, x, y); }
CF_INLINE double cf_select(bool ok, double x, double y) { return cf_blend<uint64_t>(ok, x, y); }
CF_INLINE int64_t cf_select(bool ok, int64_t x, int64_t y) { return cf_blend<uint64_t>(ok, x, y); }
CF_INLINE int32_t cf_select(bool ok, int32_t x, int32_t y) { return cf_blend<uint32_t>(ok, x, y); }
CF_INLINE bool cf_select(bool ok, bool x, bool y) { return ok ? x : y; }
template <typename T> CF_INLINE T cf_sign(T x) { return T((x > T(0)) - (x < T(0))); }
template <typename T> CF_INLINE T cf_reciprocal(T x) { return T(1) / x; }
CF_INLINE float cf_abs(float x) { return __builtin_fabsf(x); }
CF_INLINE double cf_abs(double x) { return __builtin_fabs(x); }
CF_INLINE int64_t cf_abs(int64_t x) { return x < 0 ? int64_t(uint64_t(0) - uint64_t(x)) : x; }
CF_INLINE int32_t cf_abs(int32_t x) { return x < 0 ? int32_t(uint32_t(0) - uint32_t(x)) : x; }
template <typename T> CF_INLINE T cf_floor(T x) { return x; }
template <typename T> CF_INLINE T cf_ceil(T x) { return x; }
template <typename T> CF_INLINE T cf_round(T x) { return x; }
template <typename T> CF_INLINE T cf_trunc(T x) { return x; }
// Integers: no trap for a zero divisor or for the one quotient that overflows.
template <typename T> CF_INLINE T cf_div(T x, T y) {
  return y == 0 ? T(0) : y == -1 ? T(0 - uint64_t(x)) : T(x / y);
}
CF_INLINE int64_t cf_floor_div(int64_t x, int64_t y) { return x >= 0 ? x / y : -((y - 1 - x) / y); }
template <typename T> CF_INLINE T cf_fmod(T x, T y) { return y == 0 || y == -1 ? T(0) : T(x % y); }
CF_INLINE float cf_fmod(float x, float y) { return std::fmod(x, y); }
CF_INLINE double cf_fmod(double x, double y) { return std::fmod(x, y); }
// The sign of the divisor, as Python has it.
template <typename T> CF_INLINE T cf_remainder(T x, T y) {
  const T r = cf_fmod(x, y);
  return (r != T(0)) & ((r < T(0)) != (y < T(0))) ? T(r + y) : r;
}
CF_INLINE float cf_pow(float x, float y) { return std::pow(x, y); }
CF_INLINE double cf_pow(double x, double y) { return std::pow(x, y); }
template <typename T> CF_INLINE T cf_pow(T x, T y) {
  if (y < 0) return x == 1 ? T(1) : x == -1 ? (y % 2 != 0 ? T(-1) : T(1)) : T(0);
  uint64_t result = 1;
  for (uint64_t base = uint64_t(x); y != 0; y >>= 1, base *= base) {
    if (y & 1) result *= base;
  }
  return T(result);
}
CF_INLINE float cf_atan2(float y, float x) { return std::atan2(y, x); }
CF_INLINE double cf_atan2(double y, double x) { return std::atan2(y, x); }
)cpu";
}

}  // namespace

std::string CpuPrelude() { return std::string(CpuMathPrelude()) + CpuTilePrelude(); }

}  // namespace cudaforge::rows
