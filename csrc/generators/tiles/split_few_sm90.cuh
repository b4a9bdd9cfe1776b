// split: the small operand as tiles of halves, in the order in which `product` reads them: kTileN
// of its rows and 64 of k a tile, first h, then l, with the 128-byte swizzle.
//
// More constants in front (tiles/product_few_sm90.cc): the small operand is B, at batch * kBBatch +
// row * kBRow + k * kBStep in elements; kReorders: 1 where `product` takes k in another order.
constexpr int kPartBytes = kTileN * kBlockK * 2;  // the h or the l part of a tile
constexpr int kSplitThreads = 1024;
// Rows of a block: neighbours in memory where rows do not hold k.
constexpr int kSplitRows = kBStep == 1 ? 1 : 8;
constexpr int kRowThreads = kSplitThreads / kSplitRows;
static_assert(kBlockK == 64 && kTileN % 8 == 0);

// A row of the small operand, which is a column of `product`.
struct Column {
  float scale;  // as Magnitudes::Scale has it
  float lossy;  // the number of its elements that are not zero and below kLossy
};

// The element of k at place i of chunk c, which is 16 bytes of a tile's row. In the other order,
// 32 of k at a time, chunk c has 8 q + 2 c and the next one for each q of 0 to 3: a thread of
// `product` then finds its elements of A in 16 bytes.
__device__ __forceinline__ int ElementOfChunk(int chunk, int i) {
  if (kReorders == 0) return chunk * 8 + i;
  return chunk / 4 * 32 + i / 2 * 8 + chunk % 4 * 2 + i % 2;
}

struct SplitRow {
  const float* from;
  bool inside;

  __device__ __forceinline__ float At(int k) const {
    return inside && k < kK ? from[static_cast<long long>(k) * kBStep] : 0.0f;
  }
};

// Of each row of the block, from all its threads.
__device__ __forceinline__ Magnitudes MeasureRow(const SplitRow& row, int of, int thread) {
  __shared__ Magnitudes found[kSplitRows];
  Magnitudes seen = Magnitudes::None();
#pragma unroll 8
  for (int k = thread; k < kK; k += kRowThreads) seen.Take(row.At(k));
  if (thread == 0) found[of] = Magnitudes::None();
  __syncthreads();
  if (kSplitRows == 1) {
    seen.top = __reduce_max_sync(0xffffffffu, seen.top);
    seen.low_less_1 = __reduce_min_sync(0xffffffffu, seen.low_less_1);
    seen.nonzero = __reduce_add_sync(0xffffffffu, seen.nonzero);
  }
  if (kSplitRows > 1 || threadIdx.x % 32 == 0) {
    atomicMax(&found[of].top, seen.top);
    atomicMin(&found[of].low_less_1, seen.low_less_1);
    atomicAdd(&found[of].nonzero, seen.nonzero);
  }
  __syncthreads();
  return found[of];
}

extern "C" __global__ void __launch_bounds__(kSplitThreads)
    split(const float* __restrict__ x, unsigned char* __restrict__ tiles,
          Column* __restrict__ columns) {
  __shared__ int lossy[kSplitRows];
  const int of = threadIdx.x % kSplitRows, thread = threadIdx.x / kSplitRows;
  const int number = blockIdx.x * kSplitRows + of;  // among all rows of all tiles
  const int tile = number / kTileN, r = number % kTileN;
  const int batch = tile / kTilesN, place = tile % kTilesN * kTileN + r;
  const SplitRow row = {x + batch * kBBatch + static_cast<long long>(place) * kBRow, place < kN};
  float inverse;
  if (thread == 0) lossy[of] = 0;
  const float scale = MeasureRow(row, of, thread).Scale(inverse);
  int found = 0;
  unsigned char* to = tiles + static_cast<long long>(tile) * kSteps * 2 * kPartBytes + r * 128;
#pragma unroll 2
  for (int chunk = thread; chunk < kSteps * 8; chunk += kRowThreads) {
    unsigned high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int first = ElementOfChunk(chunk, 2 * i);
      const float a = row.At(first) * inverse, b = row.At(first + 1) * inverse;
      found += (a != 0.0f && fabsf(a) < kLossy) + (b != 0.0f && fabsf(b) < kLossy);
      high[i] = SplitUnscaled(a, b, low[i]);
    }
    unsigned char* at =
        to + static_cast<long long>(chunk / 8) * 2 * kPartBytes + (chunk % 8 ^ r % 8) * 16;
    *reinterpret_cast<uint4*>(at) = make_uint4(high[0], high[1], high[2], high[3]);
    *reinterpret_cast<uint4*>(at + kPartBytes) = make_uint4(low[0], low[1], low[2], low[3]);
  }
  if (found > 0) atomicAdd(&lossy[of], found);
  __syncthreads();
  if (thread == 0) columns[number] = {scale, static_cast<float>(lossy[of])};
}
