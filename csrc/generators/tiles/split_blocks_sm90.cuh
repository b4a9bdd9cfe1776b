// Operands in float32, 64 of k at a time: how rows are copied, and their elements split, with a
// scale for each row and block of k. Needs device/tensor_copy.cuh before it.
constexpr int kRowBoxBytes = 32 * kBlockK * 4;  // 32 rows of a matrix whose rows do not hold k
static_assert(kBlockK == 64);

// kRows rows and 64 of k from (row, k), as boxes of 128 bytes a row.
template <int kRows, bool kRowsHoldK>
__device__ __forceinline__ void CopyFloats(unsigned to, const CfTensorMap& map, int batch, int row,
                                           int k, unsigned barrier) {
  if constexpr (kRowsHoldK) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      TensorCopy(to + i * kRows * 128, map, k + i * 32, row, batch, barrier);
  } else {
#pragma unroll
    for (int i = 0; i < kRows / 32; ++i)
      TensorCopy(to + i * kRowBoxBytes, map, row + i * 32, k, batch, barrier);
  }
}

// x = h + l. Unlike SplitPair's, l is not scaled: h h', h l' and l h' are added up together. Where
// x is below kLossy, a half holds l with an error above 2^-20 of x, up to 2^-25.
constexpr float kLossy = 0.03125f;
__device__ __forceinline__ unsigned SplitUnscaled(float a, float b, unsigned& low) {
  const __half2 high = __floats2half2_rn(a, b);
  const float2 h = __half22float2(high);
  const __half2 l = __floats2half2_rn(a - h.x, b - h.y);
  low = *reinterpret_cast<const unsigned*>(&l);
  return *reinterpret_cast<const unsigned*>(&high);
}

// A row's scale for these elements, a power of two that brings the largest to [2^14, 2^15), and
// its inverse. Infinite elements stay infinite.
__device__ __forceinline__ float BlockScale(float largest, float& inverse) {
  constexpr unsigned kLeast = (127u - 112u) << 23;  // so that the inverse is finite
  const unsigned exponent = max(__float_as_uint(largest) & 0x7f800000u, kLeast);
  const unsigned scale = exponent - (14u << 23);
  inverse = __uint_as_float((254u << 23) - scale);
  return __uint_as_float(scale);
}
