// split: rows of A, then columns of B, as tiles of halves in the order in which `product` reads
// them. A block splits 32 rows (from row `begin` + 32 blockIdx.x of all), or a piece of each along
// k (blockIdx.y): then `measure` has found what the rows' scales depend on. A launch may be for the
// rows of one operand; the other's pointers are then not used.
//
// More constants in front (tiles/product_f32.cc): A is at batch * kABatch + row * kARow + k *
// kAStep, B at batch * kBBatch + column * kBRow + k * kBStep, in elements, one of row and step
// being 1; kAVector, kBVector: rows of 16-byte vectors along k; kABatches, kBBatches: matrices to
// split, 1 if all of the batch have the same; kPieces; kProducts: several have a B each, in place
// of a batch; kSummed: 1: A's rows are added up as well, 2: B's columns, 0: neither. Columns of B
// have the slots of four_neighbours.cuh; scales and magnitudes are in the columns' own order.
constexpr int kTile = kTileM;  // rows of A, columns of B in a tile: kTileN is the same
constexpr int kRowsA = kTilesM * kTile;
constexpr int kRowsB = kTilesN * kTile;
constexpr int kPartBytes = kTile * kBlockK * 2;  // the h or the l part of one operand
constexpr int kOperandBytes = 2 * kPartBytes;    // h, then l
static_assert(kTileN == kTile && kBlockK == 64);
constexpr int kSplitThreads = 1024;
constexpr int kSplitWarps = kSplitThreads / 32;
constexpr int kChunks = kSteps * 8;  // of 8 elements

struct MatricesB {
  const float* of[kProducts];

  __device__ __forceinline__ const float* Of(int batch) const {
    if constexpr (kProducts == 1) return of[0] + batch * kBBatch;
    const float* chosen = of[0];
#pragma unroll
    for (int p = 1; p < kProducts; ++p) {
      if (batch == p) chosen = of[p];
    }
    return chosen;
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

// The address of a slot, in the tile with a chunk.
__device__ __forceinline__ unsigned char* TileAt(unsigned char* __restrict__ tiles, int slot,
                                                 int chunk) {
  return tiles + (static_cast<long long>(slot / kTile) * kSteps + chunk / 8) * kOperandBytes +
         slot % kTile * 128;
}

// To the address of the slot; l is `part_bytes` behind h.
__device__ __forceinline__ void StoreChunk(unsigned char* to, int part_bytes, int slot, int chunk,
                                           const float (&x)[8], float inverse) {
  uint4 high, low;
  high.x = SplitPair(x[0] * inverse, x[1] * inverse, low.x);
  high.y = SplitPair(x[2] * inverse, x[3] * inverse, low.y);
  high.z = SplitPair(x[4] * inverse, x[5] * inverse, low.z);
  high.w = SplitPair(x[6] * inverse, x[7] * inverse, low.w);
  to += (chunk % 8 ^ slot % 8) * 16;
  *reinterpret_cast<uint4*>(to) = high;
  *reinterpret_cast<uint4*>(to + part_bytes) = low;
}

// Shared memory of a block, whichever matrix it splits.
__device__ __forceinline__ auto SharedMagnitudes() -> Magnitudes (&)[kSplitWarps][32] {
  __shared__ Magnitudes of[kSplitWarps][32];
  return of;
}
__device__ __forceinline__ auto SharedSums() -> float (&)[kSplitWarps][32] {
  __shared__ float of[kSplitWarps][32];
  return of;
}
constexpr int kRowBytes = 32 * 128;  // of 32 rows' h or l in a tile
__device__ __forceinline__ auto SharedTiles() -> unsigned char (&)[4][2][kRowBytes] {
  __shared__ __align__(16) unsigned char staged[4][2][kRowBytes];
  return staged;
}

// Where sums of an operand's rows go, of [kM] or [kN], and where those of [row][piece] are until
// then, if there are several pieces.
struct RowSums {
  float* __restrict__ of;
  float* __restrict__ of_pieces;
};

// 32 rows of a matrix, or columns of B, from `first`: their slots are the same 32. A warp has a
// row if rows hold k, else a lane has one: neighbours in memory. `begin`, `end`: chunks.
template <int kRows, int kLead, int kStep, bool kVector, bool kOfB>
struct Rows {
  enum : bool { kIsSummed = kSummed == (kOfB ? 2 : 1) };
  enum : int { kRowsOfMatrix = kRows };

  static __device__ __forceinline__ int Slot(int row) { return kOfB ? SlotOfColumn(row) : row; }

  static __device__ __forceinline__ int Row(int first) {
    return first + static_cast<int>(kStep == 1 ? threadIdx.x / 32 : threadIdx.x % 32);
  }
  static __device__ __forceinline__ int FirstChunk() {
    return static_cast<int>(kStep == 1 ? threadIdx.x % 32 : threadIdx.x / 32);
  }

  // Of the thread's row; for all of its threads. sum: its sum, if kIsSummed.
  static __device__ __forceinline__ Magnitudes Measure(const float* __restrict__ x, int first,
                                                       int begin, int end, float& sum) {
    Magnitudes seen = Magnitudes::None();
    sum = 0.0f;
    const int row = Row(first);
    const float* from = x + static_cast<long long>(row) * kLead;
    if (row < kRows) {
      float values[8];
#pragma unroll 2
      for (int chunk = begin + FirstChunk(); chunk < end; chunk += 32) {
        LoadChunk<kStep, kVector>(from, chunk, values);
#pragma unroll
        for (int j = 0; j < 8; ++j) seen.Take(values[j]);
        if constexpr (kIsSummed != 0) {
          sum += ((values[0] + values[1]) + (values[2] + values[3])) +
                 ((values[4] + values[5]) + (values[6] + values[7]));
        }
      }
    }
    if constexpr (kStep == 1) {
      seen.top = __reduce_max_sync(0xffffffffu, seen.top);
      seen.low_less_1 = __reduce_min_sync(0xffffffffu, seen.low_less_1);
      seen.nonzero = __reduce_add_sync(0xffffffffu, seen.nonzero);
      if constexpr (kIsSummed != 0) {
#pragma unroll
        for (int mask = 1; mask < 32; mask *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
      }
      return seen;
    } else {
      Magnitudes(&of)[kSplitWarps][32] = SharedMagnitudes();
      const int lane = threadIdx.x % 32;
      of[threadIdx.x / 32][lane] = seen;
      if constexpr (kIsSummed != 0) SharedSums()[threadIdx.x / 32][lane] = sum;
      __syncthreads();
      Magnitudes all = Magnitudes::None();
#pragma unroll 4
      for (int w = 0; w < kSplitWarps; ++w) all.Take(of[w][lane]);
      if constexpr (kIsSummed != 0) {
        sum = 0.0f;
#pragma unroll 4
        for (int w = 0; w < kSplitWarps; ++w) sum += SharedSums()[w][lane];
      }
      return all;
    }
  }

  static __device__ __forceinline__ void Write(const float* __restrict__ x,
                                               unsigned char* __restrict__ tiles, int first,
                                               int begin, int end, float inverse) {
    const int row = Row(first), slot = Slot(row);
    const float* from = x + static_cast<long long>(row) * kLead;
    float values[8] = {};
    if constexpr (kStep == 1) {
#pragma unroll(kPieces == 1 && kVector ? 2 : 1)
      for (int chunk = begin + FirstChunk(); chunk < end; chunk += 32) {
        if (row < kRows) LoadChunk<kStep, kVector>(from, chunk, values);
        StoreChunk(TileAt(tiles, slot, chunk), kPartBytes, slot, chunk, values, inverse);
      }
    } else {
      // Neighbouring threads have chunks of different rows: by way of shared memory, which holds
      // what 32 rows have of four tiles, whole lines are written.
      unsigned char(&staged)[4][2][kRowBytes] = SharedTiles();
      const int warp = threadIdx.x / 32;
#pragma unroll 1
      for (int chunk0 = begin; chunk0 < end; chunk0 += 32) {
        const int chunk = chunk0 + warp;
        if (chunk < end) {
          if (row < kRows) LoadChunk<kStep, false>(from, chunk, values);
          StoreChunk(staged[warp / 8][0] + slot % 32 * 128, kRowBytes, slot, chunk, values,
                     inverse);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int piece =
              i * kSplitThreads + threadIdx.x;  // of 16 bytes: 256 of h or l in a tile
          const int of = piece / 512, part = piece / 256 % 2, at = piece % 256 * 16;
          if (chunk0 + of * 8 < end) {
            *reinterpret_cast<uint4*>(TileAt(tiles, first, chunk0 + of * 8) + part * kPartBytes +
                                      at) = *reinterpret_cast<const uint4*>(staged[of][part] + at);
          }
        }
        __syncthreads();
      }
    }
  }
};

// The rows of a block: of matrix `batch` of A or B, from `first`; `number` is the first's among
// all of the operand.
struct BlockRows {
  bool of_a;
  int batch, first, number;
};
__device__ __forceinline__ BlockRows RowsOfBlock(long long begin) {
  BlockRows rows;
  rows.number = static_cast<int>(begin) + blockIdx.x * 32;
  rows.of_a = rows.number < kABatches * kRowsA;
  if (!rows.of_a) rows.number -= kABatches * kRowsA;
  const int matrix = rows.of_a ? kRowsA : kRowsB;
  rows.batch = rows.number / matrix;
  rows.first = rows.number % matrix;
  return rows;
}

constexpr int kPieceChunks = (kSteps + kPieces - 1) / kPieces * 8;

// Where there are several pieces: magnitudes[row of the operand][piece], and sums likewise.
template <class Of>
__device__ __forceinline__ void MeasureRows(const float* __restrict__ x,
                                            Magnitudes* __restrict__ magnitudes,
                                            const BlockRows& rows, const RowSums& sums) {
  const int begin = blockIdx.y * kPieceChunks, end = min(begin + kPieceChunks, kChunks);
  float sum;
  const Magnitudes seen = Of::Measure(x, rows.first, begin, end, sum);
  if (Of::FirstChunk() != 0) return;
  const int at = Of::Row(rows.number) * kPieces + blockIdx.y;
  magnitudes[at] = seen;
  if constexpr (Of::kIsSummed != 0) sums.of_pieces[at] = sum;
}

template <class Of>
__device__ __forceinline__ void SplitRows(const float* __restrict__ x,
                                          unsigned char* __restrict__ tiles,
                                          float* __restrict__ scales,
                                          const Magnitudes* __restrict__ magnitudes,
                                          const BlockRows& rows, const RowSums& sums) {
  const int begin = blockIdx.y * kPieceChunks, end = min(begin + kPieceChunks, kChunks);
  Magnitudes seen = Magnitudes::None();
  float sum = 0.0f;
  if constexpr (kPieces == 1) {
    seen = Of::Measure(x, rows.first, begin, end, sum);
  } else {
#pragma unroll 4
    for (int i = 0; i < kPieces; ++i) seen.Take(magnitudes[Of::Row(rows.number) * kPieces + i]);
  }
  float inverse;
  const float scale = seen.Scale(inverse);
  if (Of::FirstChunk() == 0 && blockIdx.y == 0) {
    scales[Of::Row(rows.number)] = scale;
    if constexpr (Of::kIsSummed != 0) {
      if constexpr (kPieces > 1) {
#pragma unroll 4
        for (int i = 0; i < kPieces; ++i) sum += sums.of_pieces[Of::Row(rows.number) * kPieces + i];
      }
      if (Of::Row(rows.first) < Of::kRowsOfMatrix) sums.of[Of::Row(rows.first)] = sum;
    }
  }
  Of::Write(x, tiles, rows.first, begin, end, inverse);
}

using RowsOfA = Rows<kM, kARow, kAStep, kAVector != 0, false>;
using RowsOfB = Rows<kN, kBRow, kBStep, kBVector != 0, true>;

__device__ __forceinline__ void Measure(const float* __restrict__ a, const MatricesB& b,
                                        Magnitudes* __restrict__ a_magnitudes,
                                        Magnitudes* __restrict__ b_magnitudes, long long begin,
                                        const RowSums& sums) {
  const BlockRows rows = RowsOfBlock(begin);
  if (rows.of_a) {
    MeasureRows<RowsOfA>(a + rows.batch * kABatch, a_magnitudes, rows, sums);
  } else {
    MeasureRows<RowsOfB>(b.Of(rows.batch), b_magnitudes, rows, sums);
  }
}

// Parts of a row that is not split are written too, whatever they are; nothing uses what comes of
// it.
__device__ __forceinline__ void Split(const float* __restrict__ a, const MatricesB& b,
                                      unsigned char* __restrict__ a_tiles,
                                      unsigned char* __restrict__ b_tiles,
                                      float* __restrict__ a_scales, float* __restrict__ b_scales,
                                      const Magnitudes* __restrict__ a_magnitudes,
                                      const Magnitudes* __restrict__ b_magnitudes, long long begin,
                                      const RowSums& sums) {
  const BlockRows rows = RowsOfBlock(begin);
  constexpr long long kBytesA = static_cast<long long>(kTilesM) * kSteps * kOperandBytes;
  constexpr long long kBytesB = static_cast<long long>(kTilesN) * kSteps * kOperandBytes;
  if (rows.of_a) {
    SplitRows<RowsOfA>(a + rows.batch * kABatch, a_tiles + rows.batch * kBytesA, a_scales,
                       a_magnitudes, rows, sums);
  } else {
    SplitRows<RowsOfB>(b.Of(rows.batch), b_tiles + rows.batch * kBytesB, b_scales, b_magnitudes,
                       rows, sums);
  }
}
