// Sums of tiles of A B in float32 on Hopper's tensor cores, where B has few columns: one or two
// tiles of them. The rows of A are copied as they are, once for each; a thread splits what it
// multiplies in registers, with a scale for each row and 64 of k. Sums over 64 of k are added up in
// float32, because the tensor cores' own accumulators truncate. The tiles of B: see
// split_few_sm90.cuh.
//
// One more constant in front (tiles/product_few_sm90.cc): kARowsHoldK.
constexpr int kBytesA = kTileM * kBlockK * 4;
constexpr int kBytesB = 2 * kPartBytes;
static_assert(kTileM == 128 && kBlockK == 64 && kStageBytes == kBytesA);

// One side's view of stages in shared memory: barrier s of `full` is for the copies into stage s,
// of `empty` for its readers, all warps that multiply. A and B have rings of their own: A is read
// from its stages one step before the tensor cores read B from theirs.
template <int kCount, int kBytes>
struct Ring {
  unsigned memory, full, empty;
  int stage = 0;
  unsigned parity = 0;

  static constexpr int kBarriers = 2 * kCount;
  __device__ __forceinline__ Ring(unsigned at, unsigned barriers)
      : memory(at), full(barriers), empty(barriers + 8 * kCount) {}
  // By one thread.
  __device__ __forceinline__ void Init() const {
    for (int s = 0; s < kCount; ++s) {
      BarrierInit(full + 8 * s, 1);
      BarrierInit(empty + 8 * s, kConsumers / 32);
    }
  }
  __device__ __forceinline__ void Next() {
    if (++stage == kCount) {
      stage = 0;
      parity ^= 1u;
    }
  }
  __device__ __forceinline__ unsigned at() const { return memory + stage * kBytes; }
  // The barrier of the copies into the stage, when it is free.
  __device__ __forceinline__ unsigned WaitUntilEmpty() const {
    BarrierWait(empty + 8 * stage, parity ^ 1u);
    BarrierExpect(full + 8 * stage, kBytes);
    return full + 8 * stage;
  }
  __device__ __forceinline__ void WaitUntilFull() const { BarrierWait(full + 8 * stage, parity); }
};
using RingA = Ring<kStages, kBytesA>;
using RingB = Ring<kStagesB, kBytesB>;

// One thread.
__device__ __forceinline__ void CopyRows(RingA ring, const CfTensorMap& a) {
  for (int number = blockIdx.x; number < kUnits; number += gridDim.x) {
    const Unit unit(number);
    const int batch = unit.tile.batch_of_a(), row = unit.tile.m_tile * kTileM;
#pragma unroll 1
    for (int step = unit.first_step; step < unit.first_step + unit.steps; ++step) {
      const unsigned full = ring.WaitUntilEmpty();
      CopyFloats<kTileM, kARowsHoldK != 0>(ring.at(), a, batch, row, step * kBlockK, full);
      ring.Next();
    }
  }
}

// Which of all tiles of columns it is.
__device__ __forceinline__ int ColumnTile(const Tile& tile) {
  return tile.batch_of_b() * kTilesN + tile.n_tile;
}

// One thread, another one: neither waits for what the other one copies.
__device__ __forceinline__ void CopyColumns(RingB ring, const unsigned char* __restrict__ tiles) {
  for (int number = blockIdx.x; number < kUnits; number += gridDim.x) {
    const Unit unit(number);
    const long long first = static_cast<long long>(ColumnTile(unit.tile)) * kSteps;
#pragma unroll 1
    for (int step = unit.first_step; step < unit.first_step + unit.steps; ++step) {
      const unsigned full = ring.WaitUntilEmpty();
      BulkCopy(ring.at(), tiles + (first + step) * kBytesB, kBytesB, full);
      ring.Next();
    }
  }
}

// A's fragments of 64 rows and 64 of k, for each 16 of k.
struct Fragments {
  unsigned high[4][4], low[4][4];
  float scales[2];  // of the thread's rows
};

// What the errors of the thread's rows depend on. See IsUnsureOfFew.
struct RowBounds {
  float lossy[2];    // scales of steps in which the thread has elements below kLossy, added up
  float largest[2];  // of all scales
};

// The thread's elements: for each 16 of k four of each of its two rows.
__device__ __forceinline__ void LoadElements(unsigned at, float (&x)[4][2][4]) {
  const int row = RowOfThread(threadIdx.x), q = threadIdx.x % 4;
#pragma unroll
  for (int t = 0; t < 4; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + half * 8;
      if constexpr (kARowsHoldK != 0) {
        SharedFloats(at + t / 2 * (kBytesA / 2) + r * 128 + ((2 * q + t % 2) ^ row % 8) * 16,
                     x[t][half]);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int k = t * 16 + i / 2 * 8 + 2 * q + i % 2;
          x[t][half][i] = SharedFloat(at + r / 32 * kRowBoxBytes + k * 128 +
                                      ((r % 32 / 4) ^ k % 8) * 16 + r % 4 * 4);
        }
      }
    }
  }
}

// The least magnitude of the thread's halves of a row.
__device__ __forceinline__ float LeastOf(const unsigned (&high)[4][4], int half) {
  __half2 least = __habs2(*reinterpret_cast<const __half2*>(&high[0][half]));
#pragma unroll
  for (int i = 1; i < 8; ++i) {
    const unsigned pair = high[i / 2][half + i % 2 * 2];
    least = __hmin2(least, __habs2(*reinterpret_cast<const __half2*>(&pair)));
  }
  return fminf(__low2float(least), __high2float(least));
}

// Splits the elements of the ring's stage, and frees it. Without a branch, see MultiplyStep: if the
// stage is not full, what it finds does not count.
__device__ __forceinline__ void LoadFragments(RingA& ring, bool is_full, Fragments& f,
                                              RowBounds& bounds) {
  float x[4][2][4];
  LoadElements(ring.at(), x);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < 16; ++i) largest = fmaxf(largest, fabsf(x[i / 4][half][i % 4]));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    float inverse;
    const float scale = BlockScale(largest, inverse);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float(&from)[4] = x[i / 2][half];
      const int first = i % 2 * 2;
      f.high[i / 2][half + first] = SplitUnscaled(from[first] * inverse, from[first + 1] * inverse,
                                                  f.low[i / 2][half + first]);
    }
    f.scales[half] = scale;
    const float counted = is_full && largest != 0.0f ? scale : 0.0f;
    bounds.lossy[half] += LeastOf(f.high, half) < kLossy ? counted : 0.0f;
    bounds.largest[half] = fmaxf(bounds.largest[half], counted);
  }
  __syncwarp();
  if (is_full && threadIdx.x % 32 == 0) BarrierArrive(ring.empty + 8 * ring.stage);
}

// For each thread pairs of sums at its rows, column 8 j + lane % 4 * 2.
struct Sums {
  float of[kSums];
  float recent[kSums];  // of the last kRecentSteps, where kHasRecent
  RowBounds bounds;
};
// Where there are registers for it, sums of sums: more accurate, as ATen's kernels for few rows.
enum : bool { kHasRecent = kTileN <= 64 };
constexpr int kRecentSteps = 8;

// One step, `now`; takes the next one, where there is one, while the tensor cores work. They read
// the registers of `now` until MmaWait. The compiler keeps these if there is no branch before
// MmaWait, and the caller exchanges `now` and `next` in the next step instead of copying them.
__device__ __forceinline__ void MultiplyStep(RingA& a, RingB& b, bool has_next,
                                             const Fragments& now, Fragments& next,
                                             float (&block)[kSums], Sums& sums) {
  const unsigned long long high = RowsOfK(b.at()), low = RowsOfK(b.at() + kPartBytes);
  if (has_next) a.WaitUntilFull();
  b.WaitUntilFull();
  __syncwarp();
  MmaFence();
  Mma<0>(block, now.high[0], low);
#pragma unroll
  for (int t = 1; t < 4; ++t) Mma<1>(block, now.high[t], low + 2 * t);
#pragma unroll
  for (int t = 0; t < 4; ++t) Mma<1>(block, now.low[t], high + 2 * t);
#pragma unroll
  for (int t = 0; t < 4; ++t) Mma<1>(block, now.high[t], high + 2 * t);
  MmaCommit();
  LoadFragments(a, has_next, next, sums.bounds);
  MmaWait<0>(block);
  if (threadIdx.x % 32 == 0) BarrierArrive(b.empty + 8 * b.stage);
  b.Next();
  if (has_next) a.Next();
  float(&to)[kSums] = kHasRecent ? sums.recent : sums.of;
#pragma unroll
  for (int i = 0; i < kSums; ++i) to[i] = fmaf(block[i], now.scales[i % 4 / 2], to[i]);
}

// Adds up the recent sums.
__device__ __forceinline__ void Settle(Sums& sums) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    sums.of[i] += sums.recent[i];
    sums.recent[i] = 0.0f;
  }
}

// In units of B's scales.
__device__ __forceinline__ void MultiplyTile(RingA& a, RingB& b, int steps, Sums& sums) {
  float block[kSums];
#pragma unroll
  for (int i = 0; i < kSums; ++i) sums.of[i] = sums.recent[i] = block[i] = 0.0f;
  sums.bounds = {};
  Fragments even, odd;
  a.WaitUntilFull();
  LoadFragments(a, true, even, sums.bounds);
  a.Next();
#pragma unroll 1
  for (int left = steps;; left -= 2) {
    MultiplyStep(a, b, left > 1, even, odd, block, sums);
    if (left <= 1) break;
    MultiplyStep(a, b, left > 2, odd, even, block, sums);
    if (left <= 2) break;
    if (kHasRecent && left / 2 % (kRecentSteps / 2) == 0) Settle(sums);
  }
  if (kHasRecent) Settle(sums);
    // Of all threads of a row.
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float& lossy = sums.bounds.lossy[half];
    lossy += __shfl_xor_sync(0xffffffffu, lossy, 1);
    lossy += __shfl_xor_sync(0xffffffffu, lossy, 2);
  }
}
