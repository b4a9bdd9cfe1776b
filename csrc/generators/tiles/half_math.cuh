// Functions for results that are rounded to a half type: wrong by some 2^-17 of the value, or by
// 2^-22 of 1 where they have a limit. They are zero, infinite and NaN where ATen's float32 formulas
// are: what follows may multiply by infinity. `using` them hides those of the generated kernels'
// prelude, which they call for other types than float.
namespace half_math {

#ifdef __CUDA_ARCH__
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
inline float Exp2(float x) { return exp2f(x); }
inline float Reciprocal(float x) { return 1.0f / x; }
#endif

#define CF_LOG2_E 1.4426950408889634f
template <class T>
CF_DEVICE T cf_exp(T x) {
  return ::cf_exp(x);
}
CF_DEVICE float cf_exp(float x) { return ::cf_exp(x); }  // denormal results are kept

template <class T>
CF_DEVICE T cf_sigmoid(T x) {
  return ::cf_sigmoid(x);
}
CF_DEVICE float cf_sigmoid(float x) {
  // Reciprocal() gives no denormal numbers: that of a quarter has none.
  return Reciprocal(fmaf(Exp2(x * -CF_LOG2_E), 0.25f, 0.25f)) * 0.25f;
}

template <class T>
CF_DEVICE T cf_tanh(T x) {
  return ::cf_tanh(x);
}
CF_DEVICE float cf_tanh(float x) {
  const float far = fmaf(-2.0f, Reciprocal(1.0f + Exp2(x * (2.0f * CF_LOG2_E))), 1.0f);
  return fabsf(x) < 0.004f ? x : far;  // without x^3 / 3
}

// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
template <class T>
CF_DEVICE T cf_erf(T x) {
  return ::cf_erf(x);
}
CF_DEVICE float cf_erf(float x) {
  const float t = Reciprocal(fmaf(0.3275911f, fabsf(x), 1.0f));
  float p = fmaf(1.061405429f, t, -1.453152027f);
  p = fmaf(p, t, 1.421413741f);
  p = fmaf(p, t, -0.284496736f);
  p = fmaf(p, t, 0.254829592f) * t;
  const float far = copysignf(fmaf(-p, Exp2(x * x * -CF_LOG2_E), 1.0f), x);
  return fabsf(x) < 0.01f ? x * 1.1283792f : far;  // 2 x / sqrt(pi)
}

// erf(|x| / sqrt(2)) = 1 - p exp(-x^2 / 2), p fitted to a relative error of 7.3e-6 from 0 to 6.
template <class T>
CF_DEVICE T cf_gelu(T x) {
  return ::cf_gelu(x);
}
CF_DEVICE float cf_gelu(float x) {
  const float t = Reciprocal(fmaf(0.358f, fabsf(x), 1.0f));
  float p = fmaf(-0.1946854728f, t, 0.5091043078f);
  p = fmaf(p, t, 0.0754764458f);
  p = fmaf(p, t, 0.328581011f);
  p = fmaf(p, t, 0.2815167046f) * t;
  const float erf = fmaf(-p, Exp2(x * x * (-0.5f * CF_LOG2_E)), 1.0f);
  return x * 0.5f * (1.0f + copysignf(erf, x));
}

// tanh(u) = 1 - 2 / (1 + exp(2 u))
template <class T>
CF_DEVICE T cf_gelu_tanh(T x) {
  return ::cf_gelu_tanh(x);
}
CF_DEVICE float cf_gelu_tanh(float x) {
  constexpr float kLinear = 2.3022082f, kCubic = 0.1029432f;  // 2 sqrt(2 / pi) log2(e), * 0.044715
  const float power = Exp2(x * fmaf(kCubic, x * x, kLinear));
  return x * 0.5f * (1.0f + fmaf(-2.0f, Reciprocal(1.0f + power), 1.0f));
}
#undef CF_LOG2_E

}  // namespace half_math
