// product: out = epilogue(A B) in float16 or bfloat16 with float32 sums, by mma.sync. Operands are
// copied as they are, in either layout; beyond a matrix zeros are copied. `Epilogue` is generated,
// see tiles/epilogue.h. The units: units.cuh.
//
// More constants in front (tiles/product_half_mma.cc): kARowsHoldK, kBRowsHoldK; kALead, kBLead:
// elements from a row in memory to the next; kABatch, kBBatch: from a matrix to the next; kACopy,
// kBCopy: bytes of a copy; kIsBFloat16; kThreads: warps of 64 columns, and kStrips times 16 rows.
constexpr int kWarpsN = kTileN / 64;
constexpr int kStrips = kTileM / (kThreads / 32 / kWarpsN) / 16;
constexpr int kBytesA = kTileM * kBlockK * 2;
static_assert(kBlockK == 32 && kStageBytes == kBytesA + kTileN * kBlockK * 2);
static_assert(kStrips % 2 == 0, "rows of a warp are multiples of 32");

// The warp's first row and column in its tile.
__device__ __forceinline__ int FirstRow() {
  return static_cast<int>(threadIdx.x) / 32 / kWarpsN * (16 * kStrips);
}
__device__ __forceinline__ int FirstColumn() {
  return static_cast<int>(threadIdx.x) / 32 % kWarpsN * 64;
}

// An operand's part of a stage: kRows rows and 32 of k of a matrix with kAll rows.
// kCopy: bytes of a copy, 16, 8 or 4; 2: elements go through registers.
template <int kRows, int kAll, int kLead, bool kRowsHoldK, int kCopy>
struct OperandSource {
  enum : int {
    kPiecesOfLine = kRowsHoldK ? 4 : kRows / 8,  // of 16 bytes, of a row in memory
    kLines = kRowsHoldK ? kRows : 32,
    kLinesAtOnce = kThreads / kPiecesOfLine
  };
  enum : long long { kStep = kRowsHoldK ? 32ll : 32ll * kLead };  // elements to the next stage
  enum : bool { kAllInside = kAll % kRows == 0 && kK % 32 == 0 };
  static_assert(kLines % kLinesAtOnce == 0 && kLinesAtOnce % 8 == 0);

  const unsigned short* from;   // the thread's first piece
  int line_limit, piece_limit;  // elements inside the matrix, from the thread's first piece on

  __device__ __forceinline__ void Begin(const unsigned short* __restrict__ matrix, int row, int k) {
    const int line = threadIdx.x / kPiecesOfLine, piece = threadIdx.x % kPiecesOfLine * 8;
    const int first_line = (kRowsHoldK ? row : k) + line, first = (kRowsHoldK ? k : row) + piece;
    from = matrix + static_cast<long long>(first_line) * kLead + first;
    line_limit = (kRowsHoldK ? kAll : kK) - first_line;
    piece_limit = (kRowsHoldK ? kK : kAll) - first;
  }

  // `matrix`: where kCopy bytes can be read.
  __device__ __forceinline__ void Copy(unsigned to, const unsigned short* __restrict__ matrix) {
    const unsigned line = threadIdx.x / kPiecesOfLine, piece = threadIdx.x % kPiecesOfLine;
    to += kRowsHoldK ? RowsOf32(line, piece) : RowsOfOneK(line, piece, kRows);
    constexpr int kLineBytes = kRowsHoldK ? 64 : kRows * 2;
    if constexpr (kCopy == 2) CopyElements<kLineBytes>(to);
#pragma unroll
    for (int i = 0; i < kLines; i += kLinesAtOnce) {
      const unsigned short* at = from + static_cast<long long>(i) * kLead;
      if constexpr (kAllInside && kCopy == 16) {
        AsyncCopy(to + i * kLineBytes, at);
      } else if constexpr (kCopy > 2) {
#pragma unroll
        for (int part = 0; part < 8; part += kCopy / 2) {
          const int inside = i < line_limit ? max(0, min(kCopy / 2, piece_limit - part)) : 0;
          AsyncCopyOf<kCopy>(to + i * kLineBytes + 2 * part, inside > 0 ? at + part : matrix,
                             2 * inside);
        }
      }
    }
    from += kStep;
    (kRowsHoldK ? piece_limit : line_limit) -= 32;
  }

 private:
  template <int kLineBytes>
  __device__ __forceinline__ void CopyElements(unsigned to) const {
    unsigned short x[kLines / kLinesAtOnce][8];
#pragma unroll
    for (int i = 0; i < kLines / kLinesAtOnce; ++i) {
      const unsigned short* at = from + static_cast<long long>(i * kLinesAtOnce) * kLead;
#pragma unroll
      for (int j = 0; j < 8; ++j)
        x[i][j] = i * kLinesAtOnce < line_limit && j < piece_limit ? __ldg(at + j) : 0;
    }
#pragma unroll
    for (int i = 0; i < kLines / kLinesAtOnce; ++i)
      StoreHalves(to + i * kLinesAtOnce * kLineBytes, x[i]);
  }
};

struct Source {
  const unsigned short* __restrict__ a;
  const unsigned short* __restrict__ b;
  OperandSource<kTileM, kM, kALead, kARowsHoldK != 0, kACopy> of_a;
  OperandSource<kTileN, kN, kBLead, kBRowsHoldK != 0, kBCopy> of_b;
  int number, left;  // the unit, and steps that it has left

  __device__ __forceinline__ void Begin(int unit_number) {
    number = unit_number;
    if (number >= kUnits) return;
    const Unit unit(number);
    const int k = unit.first_step * kBlockK;
    of_a.Begin(a + unit.tile.batch * kABatch, unit.tile.m_tile * kTileM, k);
    of_b.Begin(b + unit.tile.batch * kBBatch, unit.tile.n_tile * kTileN, k);
    left = unit.steps;
  }

  __device__ __forceinline__ void Copy(unsigned to) {
    if (number >= kUnits) return;
    of_a.Copy(to, a);
    of_b.Copy(to + kBytesA, b);
    if (--left == 0) Begin(number + gridDim.x);
  }
};

// A thread's sums: blocks of 16 rows and 8 columns. It has two neighbours at row lane / 4, column
// lane % 4 * 2, and those 8 rows below.
struct Sums {
  float of[kStrips][8][4];
};

__device__ __forceinline__ void MultiplyTile(Ring<Source>& ring, int steps, Sums& sums) {
  const unsigned of_a = kARowsHoldK ? LaneOfRowsA(FirstRow()) : LaneOfOneKA(FirstRow(), kTileM);
  const unsigned of_b =
      kBytesA + (kBRowsHoldK ? LaneOfRowsB(FirstColumn()) : LaneOfOneKB(FirstColumn(), kTileN));
#pragma unroll
  for (int i = 0; i < kStrips * 32; ++i) sums.of[i / 32][i / 4 % 8][i % 4] = 0.0f;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const unsigned at = ring.Next();
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      unsigned a[kStrips][4], b[4][4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (kBRowsHoldK) {
          LoadMatrices(((at + of_b) ^ (k * 32)) + j * 16 * 64, b[j]);
        } else {
          LoadTransposed((at + of_b + k * 32 * kTileN) ^ (j * 32), b[j]);
        }
      }
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
        if constexpr (kARowsHoldK) {
          LoadMatrices(((at + of_a) ^ (k * 32)) + strip * 16 * 64, a[strip]);
        } else {
          LoadTransposed((at + of_a + k * 32 * kTileM) ^ (strip * 32), a[strip]);
        }
      }
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          MultiplyFragments<kIsBFloat16 != 0>(sums.of[strip][j], a[strip], b[j / 2][j % 2 * 2],
                                              b[j / 2][j % 2 * 2 + 1]);
        }
      }
    }
  }
}

// Eight rows of a warp's 64 columns in shared memory, so that lanes load and store neighbours: the
// piece of eight columns p of row r is at piece p ^ r.
constexpr int kRowsFloats = 8 * 64;
struct EightRows {
  float* memory;

  __device__ __forceinline__ float* At(int row, int column) const {
    return memory + row * 64 + (column / 8 ^ row) * 8 + column % 8;
  }
  // The thread's pairs of a strip, at row lane / 4 or, with half 1, 8 below.
  __device__ __forceinline__ void Put(const float (&strip)[8][4], int half) const {
    const int lane = threadIdx.x % 32;
    __syncwarp();  // no lane reads what was there before
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      *reinterpret_cast<float2*>(At(lane / 4, j * 8 + lane % 4 * 2)) =
          make_float2(strip[j][2 * half], strip[j][2 * half + 1]);
    }
    __syncwarp();
  }
};

// Gives the sums of eight rows from (row0, column0) of the matrix to the epilogue.
template <class Epilogue>
__device__ __forceinline__ void GiveRows(const Epilogue& epilogue, const Tile& tile, int row0,
                                         int column0, const float (&strip)[8][4], int half,
                                         const EightRows& rows) {
  constexpr int kOfLane = kRowsFloats / kNeighbours / 32;  // groups of neighbours
  constexpr int kAhead = kNeighbours == 8 ? kOfLane : 1;
  const int lane = threadIdx.x % 32;
  const auto place = [&](int i) { return (i * 32 + lane) * kNeighbours; };
  const auto row = [&](int i) { return place(i) / 64; };
  const auto column = [&](int i) { return place(i) % 64; };
  NeighbourInputs<Epilogue> inputs[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i)
    inputs[i] = LoadNeighbours(epilogue, tile.batch, row0 + row(i), column0 + column(i));
  rows.Put(strip, half);
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    if (i >= kAhead)
      inputs[i % kAhead] = LoadNeighbours(epilogue, tile.batch, row0 + row(i), column0 + column(i));
    float sums[kNeighbours];
    const float* from = rows.At(row(i), column(i));
#pragma unroll
    for (int j = 0; j < kNeighbours; ++j) sums[j] = from[j];
    StoreNeighbours(epilogue, tile.batch, row0 + row(i), column0 + column(i), sums,
                    inputs[i % kAhead]);
  }
}

// The sums of a part, for `combine`.
__device__ __forceinline__ void GivePart(float* __restrict__ partial, int part, const Sums& sums) {
  const int lane = threadIdx.x % 32;
  float* to = partial + static_cast<long long>(part) * kTileM * kTileN +
              (FirstRow() + lane / 4) * kTileN + FirstColumn() + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < kStrips * 16; ++i) {
    const float(&block)[4] = sums.of[i / 16][i / 2 % 8];
    *reinterpret_cast<float2*>(to + (i / 16 * 16 + i % 2 * 8) * kTileN + i / 2 % 8 * 8) =
        make_float2(block[i % 2 * 2], block[i % 2 * 2 + 1]);
  }
}

template <class Epilogue>
__device__ __forceinline__ void Product(const Epilogue& epilogue,
                                        const unsigned short* __restrict__ a,
                                        const unsigned short* __restrict__ b,
                                        float* __restrict__ partial) {
  extern __shared__ __align__(128) uint4 dynamic_shared[];
  static_assert(kThreads / 32 * kRowsFloats * 4 <= kStageBytes);
  Ring<Source> ring(dynamic_shared, {a, b});
  ring.Begin(blockIdx.x);
#pragma unroll 1
  for (int number = blockIdx.x; number < kUnits; number += gridDim.x) {
    Sums sums;
    MultiplyTile(ring, Unit(number).steps, sums);
    int same = number;  // so that nothing of the unit is held in registers during the sums
    asm volatile("" : "+r"(same));
    const Unit unit(same);
    if (!unit.is_whole()) {
      GivePart(partial, unit.part, sums);
      continue;
    }
    __syncthreads();  // no warp reads the last stage
    const EightRows rows = {reinterpret_cast<float*>(dynamic_shared) + ring.LastOffset() / 4 +
                            threadIdx.x / 32 * kRowsFloats};
    const int row0 = unit.tile.m_tile * kTileM + FirstRow();
    const int column0 = unit.tile.n_tile * kTileN + FirstColumn();
#pragma unroll
    for (int i = 0; i < 2 * kStrips; ++i)
      GiveRows(epilogue, unit.tile, row0 + i * 8, column0, sums.of[i / 2], i % 2, rows);
  }
}
