// Constants in front: kK; kARow, kAStep, kBRow, kBStep: elements from a row of A, or column of B,
// to the next, and along k.

// The sum at (row, column) in float32, by all lanes of a warp; theirs all.
__device__ __forceinline__ float SumAgain(const float* __restrict__ a, const float* __restrict__ b,
                                          int row, int column) {
  const float* from_a = a + static_cast<long long>(row) * kARow;
  const float* from_b = b + static_cast<long long>(column) * kBRow;
  float total = 0.0f;
#pragma unroll 1
  for (int k0 = threadIdx.x % 32; k0 < kK; k0 += 32 * 8) {
    float part = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int k = k0 + 32 * i;
      if (k < kK) {
        part = fmaf(from_a[static_cast<long long>(k) * kAStep],
                    from_b[static_cast<long long>(k) * kBStep], part);
      }
    }
    total += part;
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    total += __shfl_xor_sync(0xffffffffu, total, offset);
  return total;
}
