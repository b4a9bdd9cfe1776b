// What float32 products that split their operands where they multiply do with a thread's sums. Each
// warpgroup has 64 rows of a tile, a thread two of them. Before it: four_neighbours.cuh,
// pipeline_sm90.cuh, sum_again.cuh, and the generated `Epilogue`, see tiles/epilogue.h.
//
// More constants in front: kExchanged: 1 where the region's result is the transpose, its rows the
// columns here; kFourNeighbours: 1 where B's columns have the slots of four_neighbours.cuh.
constexpr int kSums = kTileN / 2;  // of a thread

// A thread's row in its tile, the first of two: the other one is 8 below.
__device__ __forceinline__ int RowOfThread(int thread) {
  return (thread - 128) / 32 * 16 + thread % 32 / 4;
}

// The column of a thread's sum i in its tile. Sums 2 j and 2 j + 1 are of neighbours. With
// four_neighbours.cuh: ColumnOfSlot(i / 4 * 8 + thread % 4 * 2 + i % 2), as what depends on the
// thread alone and a constant, so that a thread has one address for all columns.
__device__ __forceinline__ int ColumnOfSum(int thread, int i) {
  if (kFourNeighbours != 0) return thread % 4 * 4 + (i / 8 * 16 + i % 8 / 4 * 2 + i % 2);
  return thread % 4 * 2 + (i / 4 * 8 + i % 2);
}

// The place of the region's result that is at (row, column) here.
struct Place {
  int row, column;
  __device__ __forceinline__ Place(int r, int c)
      : row(kExchanged != 0 ? c : r), column(kExchanged != 0 ? r : c) {}
};

template <class Epilogue>
__device__ __forceinline__ void StoreOne(const Epilogue& epilogue, int batch, int row, int column,
                                         float sum) {
  const Place at(row, column);
  const float one[1] = {sum};
  epilogue.template Store<1>(batch, at.row, at.column, one,
                             epilogue.template Load<1>(batch, at.row, at.column));
}

// 16 of k, in float32.
constexpr int kSlowK = 16;
constexpr int kSlowPitchA = kTileM + 4, kSlowPitchB = kTileN + 4;
constexpr int kSlowFloats = kSlowK * (kSlowPitchA + kSlowPitchB);

template <int kRows, int kTile, int kPitch, int kLead, int kStep>
__device__ __forceinline__ void LoadSlow(const float* __restrict__ x, float* to, int row0, int k0) {
#pragma unroll 4
  for (int e = threadIdx.x - 128; e < kSlowK * kTile; e += kConsumers) {
    const int row = kStep == 1 ? e / kSlowK : e % kTile, k = kStep == 1 ? e % kSlowK : e / kTile;
    const bool inside = row0 + row < kRows && k0 + k < kK;
    to[k * kPitch + row] =
        inside
            ? x[static_cast<long long>(row0 + row) * kLead + static_cast<long long>(k0 + k) * kStep]
            : 0.0f;
  }
}

// The sums of a unit in float32, in place of `sums`.of.
template <class Sums>
__device__ __forceinline__ void SlowSums(const float* __restrict__ a, const float* __restrict__ b,
                                         const Unit& unit, float* memory, Sums& sums) {
  float* as = memory;  // [kSlowK][kSlowPitchA]
  float* bs = memory + kSlowK * kSlowPitchA;
  const int thread = ThreadHere(), row = RowOfThread(thread);
  float part[kSums];
#pragma unroll
  for (int i = 0; i < kSums; ++i) sums.of[i] = part[i] = 0.0f;
#pragma unroll 1
  for (int block = 0; block < unit.steps * (kBlockK / kSlowK); ++block) {
    const int k0 = unit.first_step * kBlockK + block * kSlowK;
    NamedBarrier(1, kConsumers);  // no thread reads the former elements any more
    LoadSlow<kM, kTileM, kSlowPitchA, kARow, kAStep>(a, as, unit.tile.m_tile * kTileM, k0);
    LoadSlow<kN, kTileN, kSlowPitchB, kBRow, kBStep>(b, bs, unit.tile.n_tile * kTileN, k0);
    NamedBarrier(1, kConsumers);
#pragma unroll 1
    for (int k = 0; k < kSlowK; ++k) {
      const float x[2] = {as[k * kSlowPitchA + row], as[k * kSlowPitchA + row + 8]};
#pragma unroll
      for (int j = 0; j < kTileN / 8; ++j) {
        const int column = ColumnOfSum(thread, 4 * j);
        const float2 y = *reinterpret_cast<const float2*>(bs + k * kSlowPitchB + column);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          part[4 * j + i] = fmaf(x[i / 2], i % 2 == 0 ? y.x : y.y, part[4 * j + i]);
      }
    }
    if (block % (kBlockK / kSlowK) != kBlockK / kSlowK - 1) continue;
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      sums.of[i] += part[i];
      part[i] = 0.0f;
    }
  }
}

// Computes unsure sums in float32 and gives them. unsure: a bit for each of the thread's.
template <class Epilogue>
__device__ __forceinline__ void GiveAgain(const Epilogue& epilogue, const float* __restrict__ a,
                                          const float* __restrict__ b, const Unit& unit,
                                          unsigned long long unsure) {
  const int first_row = unit.tile.m_tile * kTileM + (threadIdx.x - 128) / 32 * 16;
  while (const unsigned owners = __ballot_sync(0xffffffffu, unsure != 0)) {
    const int owner = __ffs(owners) - 1;
    const int one = __shfl_sync(0xffffffffu, __ffsll(static_cast<long long>(unsure)) - 1, owner);
    const int row = first_row + owner / 4 + one % 4 / 2 * 8;
    const int column = unit.tile.n_tile * kTileN + ColumnOfSum(owner, one);
    const float sum = SumAgain(a, b, row, column);
    if (static_cast<int>(threadIdx.x % 32) == owner) {
      StoreOne(epilogue, unit.tile.batch, row, column, sum);
      unsure &= unsure - 1;
    }
  }
}
