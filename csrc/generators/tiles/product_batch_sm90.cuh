// product: out = epilogue(A B) in float32, of many small matrices with short sums. Both operands
// are copied as they are, once for each tile, and split in shared memory, with a scale for each row
// of A and column of B ("row" below is either) and 64 of k. Tensor cores add up over 64 of k. Sums
// that a split would spoil are computed in float32: see docs/products.md.
//
// More constants in front (tiles/product_batch_sm90.cc): kARowsHoldK, kBRowsHoldK; kExchanged is 0;
// kFewest: rows with fewer elements that are not zero are not split, unless they have none.
constexpr int kAllRows = kTileM + kTileN;  // of a tile: those of A, then those of B
constexpr int kFloatsA = kTileM * kBlockK * 4;
constexpr int kHalvesOfA = kTileM * kBlockK * 2, kHalvesOfB = kTileN * kBlockK * 2;  // h, or l
static_assert(kTileM == 128 && kTileN % 64 == 0 && kBlockK == 64);
static_assert(kStageBytes == kAllRows * kBlockK * 4 && kGroups == 2);

__device__ __forceinline__ void CopyTiles(Pipeline pipe, const CfTensorMap& a,
                                          const CfTensorMap& b) {
  FillStages(pipe, [&](const Unit& unit, int k, unsigned to, unsigned full) {
    const Tile& tile = unit.tile;
    CopyFloats<kTileM, kARowsHoldK != 0>(to, a, tile.batch_of_a(), tile.m_tile * kTileM, k, full);
    CopyFloats<kTileN, kBRowsHoldK != 0>(to + kFloatsA, b, tile.batch_of_b(), tile.n_tile * kTileN,
                                         k, full);
  });
}

constexpr int kMostSparse = 16;  // rows that are not split, of a tile that is

// Of each row of a tile: the scale of this block of k, and what errors depend on in all blocks: the
// scale times the elements below kLossy, added up, and the largest scale.
struct alignas(16) TileRows {
  float scale[kAllRows], lossy[kAllRows], largest[kAllRows];
  int nonzero[kAllRows];                 // elements
  int any_lossy;                         // 1: a row has elements below kLossy
  int sparse, sparse_rows[kMostSparse];  // the number of rows that are not split; they
};

// Splits what kLanes lanes, each kNext from the next, have of a row: 8 kPieces elements each, from
// piece `first` of 8 on. Halves are at `to`, 128 bytes a slot with the 128-byte swizzle, low ones
// kLow bytes further.
template <int kPieces, int kLanes, int kNext, int kLow>
__device__ __forceinline__ void SplitElements(const float (&x)[8 * kPieces], unsigned to, int slot,
                                              int first, TileRows& rows, int at) {
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < 8 * kPieces; ++i) largest = fmaxf(largest, fabsf(x[i]));
#pragma unroll
  for (int mask = kNext; mask < kNext * kLanes; mask *= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, mask));
  float inverse;
  const float scale = BlockScale(largest, inverse);
  int counts = 0;  // nonzero ones, and 65536 for each below kLossy
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    unsigned high[4], low[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const float two[2] = {x[8 * p + 2 * w] * inverse, x[8 * p + 2 * w + 1] * inverse};
      high[w] = SplitUnscaled(two[0], two[1], low[w]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (x[8 * p + 2 * w + i] != 0.0f) {
          counts += 1;
          if (fabsf(two[i]) < kLossy) counts += 65536;
        }
      }
    }
    const unsigned piece = to + slot * 128 + ((first + p) ^ slot % 8) * 16;
    StoreShared(piece, make_uint4(high[0], high[1], high[2], high[3]));
    StoreShared(piece + kLow, make_uint4(low[0], low[1], low[2], low[3]));
  }
#pragma unroll
  for (int mask = kNext; mask < kNext * kLanes; mask *= 2)
    counts += __shfl_xor_sync(0xffffffffu, counts, mask);
  if (threadIdx.x / kNext % kLanes != 0) return;
  rows.scale[at] = scale;
  rows.nonzero[at] += counts % 65536;
  if (counts >= 65536) {
    rows.lossy[at] += static_cast<float>(counts / 65536) * scale;
    rows.any_lossy = 1;
  }
  if (largest != 0.0f) rows.largest[at] = fmaxf(rows.largest[at], scale);
}

// Splits the rows of A, or columns of B, of a stage at `from` to halves at `to`. Elements k of 32
// and more are exchanged with k ^ 4, in both operands, so that lanes read from other banks.
template <bool kOfB, bool kRowsHoldK>
__device__ __forceinline__ void SplitOperand(unsigned from, unsigned to, TileRows& rows) {
  constexpr int kRows = kOfB ? kTileN : kTileM, kLow = kRows * kBlockK * 2;
  constexpr int kFirstRow = kOfB ? kTileM : 0;
  const int thread = static_cast<int>(threadIdx.x) - kFirstConsumer;
  if constexpr (kRowsHoldK) {
    constexpr int kNext = kConsumers / 8;
    static_assert(kNext % 16 == 0);
    const int piece = thread % 8, first_row = kOfB ? ColumnOfSlot(thread / 8) : thread / 8;
#pragma unroll
    for (int turn = 0; turn < kRows * 8 / kConsumers; ++turn) {
      const int slot = thread / 8 + turn * kNext, row = first_row + turn * kNext;
      const unsigned at = from + piece / 4 * (kRows * 128) + row * 128;
      float four[2][4], x[8];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        SharedFloats(at + ((piece % 4 * 2 + (i ^ piece / 4)) ^ row % 8) * 16, four[i]);
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = four[i / 4][i % 4];
      SplitElements<1, 8, 1, kLow>(x, to, slot, piece, rows, kFirstRow + row);
    }
  } else {
    const int quarter = thread % 32 / 8;  // of k
#pragma unroll 1
    for (int turn = 0; turn < kRows * 4 / kConsumers; ++turn) {
      const int slot = thread / 32 * 8 + thread % 8 + turn * (kConsumers / 4);
      const int row = kOfB ? ColumnOfSlot(slot) : slot;
      float x[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int k = quarter * 16 + (i ^ quarter / 2 * 4);
        x[i] = SharedFloat(from + row / 32 * kRowBoxBytes + k * 128 +
                           ((row % 32 / 4) ^ k % 8) * 16 + row % 4 * 4);
      }
      SplitElements<2, 4, 8, kLow>(x, to, slot, quarter * 2, rows, kFirstRow + row);
    }
  }
}

struct Sums {
  float of[kSums];
};

// halves: h and l of A, h and l of B.
__device__ __forceinline__ void MultiplyTile(Pipeline& pipe, int steps, unsigned halves,
                                             TileRows& rows, Sums& sums) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int group = thread / 128 - 1;
  for (int row = thread - kFirstConsumer; row < kAllRows; row += kConsumers) {
    rows.lossy[row] = rows.largest[row] = 0.0f;
    rows.nonzero[row] = 0;
  }
  if (thread == kFirstConsumer) rows.any_lossy = rows.sparse = 0;
  float block[kSums];
#pragma unroll
  for (int i = 0; i < kSums; ++i) sums.of[i] = block[i] = 0.0f;
  const unsigned long long ah = RowsOfK(halves + group * 64 * 128);
  const unsigned long long al = RowsOfK(halves + kHalvesOfA + group * 64 * 128);
  const unsigned long long bh = RowsOfK(halves + 2 * kHalvesOfA);
  const unsigned long long bl = RowsOfK(halves + 2 * kHalvesOfA + kHalvesOfB);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    ConsumerBarrier();  // no thread needs the halves and rows of the step before
    BarrierWait(pipe.full + 8 * pipe.stage, pipe.parity);
    __syncwarp();
    SplitOperand<false, kARowsHoldK != 0>(pipe.at(), halves, rows);
    SplitOperand<true, kBRowsHoldK != 0>(pipe.at() + kFloatsA, halves + 2 * kHalvesOfA, rows);
    ShowToProducts();
    __syncwarp();
    if (lane == 0) BarrierArrive(pipe.empty + 8 * pipe.stage);
    pipe.Next();
    ConsumerBarrier();
    MmaFence();
    Mma<0>(block, ah, bl);
#pragma unroll
    for (int k = 1; k < 4; ++k) Mma<1>(block, ah + 2 * k, bl + 2 * k);
#pragma unroll
    for (int k = 0; k < 4; ++k) Mma<1>(block, al + 2 * k, bh + 2 * k);
#pragma unroll
    for (int k = 0; k < 4; ++k) Mma<1>(block, ah + 2 * k, bh + 2 * k);
    MmaCommit();
    MmaWait<0>(block);
    const int row = RowOfThread(thread);
    const float scales[2] = {rows.scale[row], rows.scale[row + 8]};
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const float of_column = rows.scale[kTileM + ColumnOfSum(thread, i)];
      sums.of[i] = fmaf(block[i] * scales[i % 4 / 2], of_column, sums.of[i]);
    }
  }
}

// A bit for each sum that is inside the matrix and unsure: it is not finite, or so small that lost
// bits might matter. Each element below kLossy loses up to 2^-25, next to a partner of up to 2^15.
// A sum that is 2^20 times the bound on these errors is sure.
__device__ __forceinline__ unsigned long long UnsureSums(const TileRows& rows, const Unit& unit,
                                                         const Sums& sums) {
  if (rows.any_lossy == 0) {  // most tiles
    float zero = 0.0f;
#pragma unroll
    for (int i = 0; i < kSums; ++i) zero = fmaf(sums.of[i], 0.0f, zero);
    if (zero == 0.0f) return 0;  // all are finite
  }
  unsigned long long unsure = 0;
  const int thread = ThreadHere(), row = RowOfThread(thread);
  const int rows_left = kM - unit.tile.m_tile * kTileM,
            columns_left = kN - unit.tile.n_tile * kTileN;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const int r = row + i % 4 / 2 * 8, c = ColumnOfSum(thread, i);
    const float errors = rows.lossy[r] * rows.largest[kTileM + c] +
                         rows.lossy[kTileM + c] * rows.largest[r];  // in 2^-10
    const float size = fabsf(sums.of[i]);
    const bool one =
        r < rows_left && c < columns_left && !(size >= errors * 1024.0f && size <= 3.4e38f);
    unsure |= static_cast<unsigned long long>(one) << i;
  }
  return unsure;
}

// Gives the tile's sums. What the epilogue reads is on its way for several pairs of blocks at once,
// if it is little; at edges, addresses take the registers for that.
template <class Epilogue>
__device__ __forceinline__ void GiveTile(const Epilogue& epilogue, const Unit& unit,
                                         const Sums& sums) {
  constexpr int kOfFour = 4 / kNeighbours;
  constexpr int kWordsOfFour =
      static_cast<int>(sizeof(typename Epilogue::template Thin<4>)) / 4 + 2 * Epilogue::kWide;
  constexpr bool kInside = kM % kTileM == 0 && kN % kTileN == 0;
  constexpr int kPairs = !kInside || kWordsOfFour > 16 ? 1 : kWordsOfFour > 8 ? 2 : 4;
  constexpr int kAtOnce = kPairs * 2 * kOfFour;
  const int thread = ThreadHere();
  const int row = unit.tile.m_tile * kTileM + RowOfThread(thread);
  const int first = unit.tile.n_tile * kTileN + ColumnOfSum(thread, 0);
#pragma unroll
  for (int pair0 = 0; pair0 < kTileN / 16; pair0 += kPairs) {
    const auto row_of = [&](int i) { return row + i / kOfFour % 2 * 8; };
    const auto column_of = [&](int i) {
      return first + (pair0 + i / kOfFour / 2) * 16 + i % kOfFour * kNeighbours;
    };
    const auto inside = [&](int i) { return row_of(i) < kM && column_of(i) < kN; };
    typename Epilogue::template Inputs<kNeighbours> inputs[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (inside(i))
        inputs[i] = epilogue.template Load<kNeighbours>(unit.tile.batch, row_of(i), column_of(i));
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (!inside(i)) continue;
      float neighbours[kNeighbours];
#pragma unroll
      for (int j = 0; j < kNeighbours; ++j) {
        const int n = i % kOfFour * kNeighbours + j;
        neighbours[j] =
            sums.of[8 * (pair0 + i / kOfFour / 2) + n / 2 * 4 + i / kOfFour % 2 * 2 + n % 2];
      }
      epilogue.template Store<kNeighbours>(unit.tile.batch, row_of(i), column_of(i), neighbours,
                                           inputs[i]);
    }
  }
}

// Notes the thread's row of the tile if it is not split.
__device__ __forceinline__ void NoteSparseRow(TileRows& rows) {
  const int row = static_cast<int>(threadIdx.x) - kFirstConsumer;
  if (row >= kAllRows || rows.nonzero[row] == 0 || rows.nonzero[row] >= kFewest) return;
  const int number = atomicAdd(&rows.sparse, 1);
  if (number < kMostSparse) rows.sparse_rows[number] = row;
}

// Computes the sums of the rows that are not split in float32 and gives them: a row of one matrix
// times all rows of the other that the tile has. A warp each.
template <class Epilogue>
__device__ __forceinline__ void GiveSparseRows(const Epilogue& epilogue,
                                               const float* __restrict__ a,
                                               const float* __restrict__ b, const Unit& unit,
                                               const TileRows& rows) {
  const int lane = threadIdx.x % 32;
  const int m0 = unit.tile.m_tile * kTileM, n0 = unit.tile.n_tile * kTileN;
#pragma unroll 1
  for (int i = threadIdx.x / 32 - kFirstConsumer / 32; i < rows.sparse; i += kConsumers / 32) {
    const int sparse = rows.sparse_rows[i];
    const bool is_of_a = sparse < kTileM;
#pragma unroll 1
    for (int other = lane; other < (is_of_a ? kTileN : kTileM); other += 32) {
      const int row = m0 + (is_of_a ? sparse : other);
      const int column = n0 + (is_of_a ? other : sparse - kTileM);
      if (row >= kM || column >= kN) continue;
      float sum = 0.0f;
#pragma unroll 4
      for (int k = 0; k < kK; ++k) {
        sum = fmaf(a[static_cast<long long>(row) * kARow + static_cast<long long>(k) * kAStep],
                   b[static_cast<long long>(column) * kBRow + static_cast<long long>(k) * kBStep],
                   sum);
      }
      StoreOne(epilogue, unit.tile.batch, row, column, sum);
    }
  }
}

template <class Epilogue>
__device__ __forceinline__ void MultiplyTiles(Pipeline pipe, const Epilogue& epilogue,
                                              const float* __restrict__ a,
                                              const float* __restrict__ b, float* slow_memory) {
  __shared__ TileRows rows;
  const unsigned halves = pipe.memory + kStages * kStageBytes;
  for (int number = blockIdx.x; number < kUnits; number += gridDim.x) {
    const Unit unit(number);
    Sums sums;
    MultiplyTile(pipe, unit.steps, halves, rows, sums);
    const float* of_a = a + unit.tile.batch * kABatch;
    const float* of_b = b + unit.tile.batch * kBBatch;
    const unsigned long long unsure = UnsureSums(rows, unit, sums);
    NoteSparseRow(rows);
    const bool slow = ConsumerBarrierOr(__popcll(unsure) > 4) || rows.sparse > kMostSparse;
    if (slow) SlowSums(of_a, of_b, unit, slow_memory, sums);
    GiveTile(epilogue, unit, sums);
    if (!slow) GiveAgain(epilogue, of_a, of_b, unit, unsure);
    if (!slow && rows.sparse > 0) {
      ConsumerBarrier();  // after all of the tile's sums are stored
      GiveSparseRows(epilogue, of_a, of_b, unit, rows);
    }
    ConsumerBarrier();  // no thread needs the rows any more
  }
}

template <class Epilogue>
__device__ __forceinline__ void Product(const Epilogue& epilogue, const CfTensorMap& a_map,
                                        const CfTensorMap& b_map, const float* __restrict__ a,
                                        const float* __restrict__ b) {
  __shared__ __align__(16) float slow_memory[kSlowFloats];
  RunPipeline([&](Pipeline pipe) { CopyTiles(pipe, a_map, b_map); },
              [&](Pipeline pipe) { MultiplyTiles(pipe, epilogue, a, b, slow_memory); });
}
