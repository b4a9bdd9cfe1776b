// out = alpha * A B (plus beta * self) in float32 on Hopper's tensor cores. Rows of A and columns
// of B are scaled by powers of two and split into two halves, h + l / 2048 (Ootomo and Yokota,
// arXiv 2203.03341). Of the products h h' + (h l' + l h') / 2048, sums over 64 elements are added
// up in float32, because the tensor cores' own accumulators truncate. Tiles that cannot be split,
// and sums that a split would spoil, are computed in float32: see docs/numerics.md.

// generators/product.cc puts constants in front: kM, kN, kK; A is at row * kARow + k * kAStep, B at
// column * kBRow + k * kBStep, in elements, one of the two being 1; kAVector, kBVector: rows of
// 16-byte vectors along k; kAdds: whether self is added, at row * kSelfRow + column * kSelfColumn;
// kParts: along k, added up by a separate launch if there are several; kStages.
constexpr int kTile = 128;   // rows of A, columns of B in a block's tile
constexpr int kBlockK = 64;  // 64 halves: one swizzled row of 128 bytes
constexpr int kTilesM = (kM + kTile - 1) / kTile;
constexpr int kTilesN = (kN + kTile - 1) / kTile;
constexpr int kRowsA = kTilesM * kTile;
constexpr int kRowsB = kTilesN * kTile;
constexpr int kSteps = (kK + kBlockK - 1) / kBlockK;
constexpr int kPartBytes = kTile * kBlockK * 2;  // the h or the l part of one operand
constexpr int kOperandBytes = 2 * kPartBytes;    // h, then l
constexpr int kStageBytes = 2 * kOperandBytes;   // A, then B

// ---------------------------------------------------------------------------------------------
// split: blocks of 32 rows of A, then of 32 columns of B. Tile (row / 128, k / 64) is 32 KB in one
// piece: 128 rows of 64 halves h, then the same of l; the 16-byte chunk c of row r stands at
// chunk c ^ (r % 8). What is beyond the matrix is zero.
// ---------------------------------------------------------------------------------------------
constexpr int kSplitThreads = 1024;
constexpr int kSplitWarps = kSplitThreads / 32;
constexpr int kChunks = kSteps * 8;  // of 8 elements

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

// The magnitudes of a row as integers, of which those of NaN are above infinity's.
struct Magnitudes {
  unsigned top = 0;
  unsigned low_less_1 = 0xffffffffu;  // of those that are not zero; less 1, zero is the largest
  unsigned nonzero = 0;

  __device__ __forceinline__ void Take(float x) {
    const unsigned m = __float_as_uint(x) & 0x7fffffffu;
    top = max(top, m);
    low_less_1 = min(low_less_1, m - 1u);
    nonzero += m != 0;
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
    if (nonzero < 64) return -1.0f;  // sums of few products are nearly exact in float32
    inverse = up;
    // The largest comes to [2^14, 2^15). Below 2^-14 bits get lost, below 2^-16 more than matter.
    const bool loses = __uint_as_float(low_less_1 + 1u) * up < 1.52587890625e-05f;
    return __uint_as_float(__float_as_uint(scale) | (loses ? kLoses : 0u));
  }
};

// Elements 8 chunk .. + 7 of the row at `from`, those beyond kK zero.
template <int kStep, bool kVector>
__device__ __forceinline__ void LoadChunk(const float* __restrict__ from, int chunk,
                                          float (&x)[8]) {
  if constexpr (kVector) {
    if (chunk * 8 < kK) {  // kK is a multiple of 8
      const float4 p = reinterpret_cast<const float4*>(from)[2 * chunk];
      const float4 q = reinterpret_cast<const float4*>(from)[2 * chunk + 1];
      x[0] = p.x, x[1] = p.y, x[2] = p.z, x[3] = p.w, x[4] = q.x, x[5] = q.y, x[6] = q.z,
      x[7] = q.w;
      return;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] = 0.0f;
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int k = chunk * 8 + j;
      x[j] = k < kK ? from[static_cast<long long>(k) * kStep] : 0.0f;
    }
  }
}

__device__ __forceinline__ void StoreChunk(unsigned char* __restrict__ tiles, int row, int chunk,
                                           const float (&x)[8], float inverse) {
  uint4 high, low;
  high.x = SplitPair(x[0] * inverse, x[1] * inverse, low.x);
  high.y = SplitPair(x[2] * inverse, x[3] * inverse, low.y);
  high.z = SplitPair(x[4] * inverse, x[5] * inverse, low.z);
  high.w = SplitPair(x[6] * inverse, x[7] * inverse, low.w);
  const int r = row % kTile;
  unsigned char* to = tiles +
                      (static_cast<long long>(row / kTile) * kSteps + chunk / 8) * kOperandBytes +
                      r * 128 + (((chunk % 8) ^ (r % 8)) * 16);
  *reinterpret_cast<uint4*>(to) = high;
  *reinterpret_cast<uint4*>(to + kPartBytes) = low;
}

template <int kRows, int kLead, int kStep, bool kVector>
__device__ __forceinline__ void SplitRows(const float* __restrict__ x,
                                          unsigned char* __restrict__ tiles,
                                          float* __restrict__ scales, int first) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Magnitudes seen;
  float inverse, values[8];
  if constexpr (kStep == 1) {  // a warp a row
    const int row = first + warp;
    const float* from = x + static_cast<long long>(row) * kLead;
    if (row < kRows) {
#pragma unroll 2
      for (int chunk = lane; chunk < kChunks; chunk += 32) {
        LoadChunk<1, kVector>(from, chunk, values);
#pragma unroll
        for (int j = 0; j < 8; ++j) seen.Take(values[j]);
      }
    }
    seen.top = __reduce_max_sync(0xffffffffu, seen.top);
    seen.low_less_1 = __reduce_min_sync(0xffffffffu, seen.low_less_1);
    seen.nonzero = __reduce_add_sync(0xffffffffu, seen.nonzero);
    const float scale = seen.Scale(inverse);
    if (lane == 0) scales[row] = scale;
#pragma unroll 2
    for (int chunk = lane; chunk < kChunks; chunk += 32) {
      if (row < kRows) {
        LoadChunk<1, kVector>(from, chunk, values);
      } else {
#pragma unroll
        for (int j = 0; j < 8; ++j) values[j] = 0.0f;
      }
      StoreChunk(tiles, row, chunk, values, inverse);
    }
  } else {  // a lane a row: neighbours in memory
    __shared__ unsigned tops[kSplitWarps][32], lows[kSplitWarps][32], counts[kSplitWarps][32];
    const int row = first + lane;
    const float* from = x + row;
    if (row < kRows) {
#pragma unroll 2
      for (int chunk = warp; chunk < kChunks; chunk += kSplitWarps) {
        LoadChunk<kStep, false>(from, chunk, values);
#pragma unroll
        for (int j = 0; j < 8; ++j) seen.Take(values[j]);
      }
    }
    tops[warp][lane] = seen.top;
    lows[warp][lane] = seen.low_less_1;
    counts[warp][lane] = seen.nonzero;
    __syncthreads();
    seen = Magnitudes();
#pragma unroll 4
    for (int w = 0; w < kSplitWarps; ++w) {
      seen.top = max(seen.top, tops[w][lane]);
      seen.low_less_1 = min(seen.low_less_1, lows[w][lane]);
      seen.nonzero += counts[w][lane];
    }
    const float scale = seen.Scale(inverse);
    if (warp == 0) scales[row] = scale;
#pragma unroll 2
    for (int chunk = warp; chunk < kChunks; chunk += kSplitWarps) {
      if (row < kRows) {
        LoadChunk<kStep, false>(from, chunk, values);
      } else {
#pragma unroll
        for (int j = 0; j < 8; ++j) values[j] = 0.0f;
      }
      StoreChunk(tiles, row, chunk, values, inverse);
    }
  }
}

// Parts of a row that is not split are written too, whatever they are; nobody uses what comes of
// it.
extern "C" __global__ void __launch_bounds__(kSplitThreads)
    split(const float* __restrict__ a, const float* __restrict__ b,
          unsigned char* __restrict__ a_tiles, unsigned char* __restrict__ b_tiles,
          float* __restrict__ scales) {
  const int first = blockIdx.x * 32;
  if (first < kRowsA) {
    SplitRows<kM, kARow, kAStep, kAVector != 0>(a, a_tiles, scales, first);
  } else {
    SplitRows<kN, kBRow, kBStep, kBVector != 0>(b, b_tiles, scales + kRowsA, first - kRowsA);
  }
}
