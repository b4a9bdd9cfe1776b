// float32 in two halves: x / s = h + l / 2048, s a power of two for each row (Ootomo and Yokota,
// arXiv 2203.03341). Of a product h h' + (h l' + l h') / 2048 is kept. docs/products.md says
// more. kK, the number of products in a sum, and kFewest, the least of them that are not zero in
// a row that is split, are defined before.

__device__ __forceinline__ unsigned SplitPair(float a, float b, unsigned& low) {
  const __half ha = __float2half_rn(a), hb = __float2half_rn(b);
  const __half la = __float2half_rn((a - __half2float(ha)) * 2048.0f);
  const __half lb = __float2half_rn((b - __half2float(hb)) * 2048.0f);
  low = static_cast<unsigned>(__half_as_ushort(la)) |
        (static_cast<unsigned>(__half_as_ushort(lb)) << 16);
  return static_cast<unsigned>(__half_as_ushort(ha)) |
         (static_cast<unsigned>(__half_as_ushort(hb)) << 16);
}

// A row's scale is negative where it is not to be split, else a power of two with these bits in it.
constexpr unsigned kLoses = 1u;    // it has elements that lose bits
constexpr unsigned kAllZero = 2u;  // it has nothing but zeros, and so have the sums
constexpr unsigned kOne = 0x3f800000u;
__device__ __forceinline__ float CleanScale(float scale) {
  return __uint_as_float(__float_as_uint(scale) & ~(kLoses | kAllZero));
}
// Whether `sum`, of a row and a column with these scales, is to be computed in float32. Elements
// far below the largest of their row lose bits: half a unit of 2^-35 if the largest is at most
// 2^15. That makes a sum of kK products wrong by at most kK * 2^-20. Sums that are not well above
// it, in a row or column with these elements, are recomputed.
__device__ __forceinline__ bool IsUnsure(float sum, float row_scale, float column_scale) {
  const unsigned bits = __float_as_uint(row_scale) | __float_as_uint(column_scale);
  const float bound =
      kK * 16.0f * CleanScale(row_scale) * CleanScale(column_scale);  // kK * 2^(24 - 20)
  return (bits & (kLoses | kAllZero)) == kLoses && fabsf(sum) < bound;
}

// The magnitudes of a row as integers: those of NaN are above infinity's.
struct Magnitudes {
  unsigned top;
  unsigned low_less_1;  // of those that are not zero; less 1, zero is the largest
  unsigned nonzero;

  static __device__ __forceinline__ Magnitudes None() { return {0, 0xffffffffu, 0}; }
  __device__ __forceinline__ void Take(float x) {
    const unsigned m = __float_as_uint(x) & 0x7fffffffu;
    top = max(top, m);
    low_less_1 = min(low_less_1, m - 1u);
    nonzero += m != 0;
  }
  __device__ __forceinline__ void Take(const Magnitudes& other) {
    top = max(top, other.top);
    low_less_1 = min(low_less_1, other.low_less_1);
    nonzero += other.nonzero;
  }
  // A row's scale, a power of two, with the bits above; the inverse is 1 where there is none.
  __device__ __forceinline__ float Scale(float& inverse) const {
    inverse = 1.0f;
    if (top == 0) return __uint_as_float(kOne | kAllZero);
    const int exponent = static_cast<int>(top >> 23) - 127;
    if (exponent > 60 || exponent < -100)
      return -1.0f;  // also NaN, infinity (128), denormals (-127)
    const float scale = __uint_as_float(static_cast<unsigned>(127 + exponent - 14) << 23);
    const float up = __uint_as_float(static_cast<unsigned>(127 + 14 - exponent) << 23);
    if (nonzero < kFewest) return -1.0f;  // sums of few products are nearly exact in float32
    inverse = up;
    // The largest is then in [2^14, 2^15). Below 2^-14 bits get lost, below 2^-16 more than matter.
    const bool loses = __uint_as_float(low_less_1 + 1u) * up < 1.52587890625e-05f;
    return __uint_as_float(__float_as_uint(scale) | (loses ? kLoses : 0u));
  }
};
