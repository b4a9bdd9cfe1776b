// product: out = epilogue(A B) in float16 or bfloat16 with float32 sums. Operands are copied as
// they are, in either layout, by tensor maps: dimensions (k, rows, batch) if rows hold k, else
// (rows, k, batch). `Epilogue` is generated, see tiles/epilogue.h.
//
// More constants in front (tiles/product_half_sm90.cc): kARowsHoldK, kBRowsHoldK; kMaps: matrices
// that are B; kTogether: of them those that a tile has columns of, side by side in shared memory
// and in the sums. Else a tile has columns of one: that of the number `batch`.
constexpr int kRowsB = kTileN * kTogether;
constexpr int kBytesA = kTileM * kBlockK * 2;
constexpr int kBoxBytes = 64 * kBlockK * 2;     // 64 rows of a matrix whose rows do not hold k
constexpr int kStrips = kTileM / kGroups / 64;  // of 64 rows, that a warpgroup multiplies
constexpr int kSums = kRowsB / 2;               // of a thread in a strip
static_assert(kBlockK == 64 && kStageBytes == kBytesA + kRowsB * kBlockK * 2);

struct Maps {
  const CfTensorMap* of[kMaps];

  __device__ __forceinline__ const CfTensorMap& Of(const Tile& tile) const {
    const CfTensorMap* chosen = of[0];
#pragma unroll
    for (int i = 1; i < kMaps; ++i) {
      if (kTogether == 1 && tile.batch == i) chosen = of[i];
    }
    return *chosen;
  }
};

// kRows rows of k and 64 of k from (row, k).
template <int kRows, bool kRowsHoldK>
__device__ __forceinline__ void CopyOperand(unsigned to, const CfTensorMap& map, int batch, int row,
                                            int k, unsigned barrier) {
  if constexpr (kRowsHoldK) {
    TensorCopy(to, map, k, row, batch, barrier);
  } else {
#pragma unroll
    for (int i = 0; i < kRows / 64; ++i)
      TensorCopy(to + i * kBoxBytes, map, row + i * 64, k, batch, barrier);
  }
}

__device__ __forceinline__ void CopyTiles(Pipeline pipe, const CfTensorMap& a, const Maps& b) {
  FillStages(pipe, [&](const Unit& unit, int k, unsigned to, unsigned full) {
    const Tile& tile = unit.tile;
    CopyOperand<kTileM, kARowsHoldK != 0>(to, a, tile.batch_of_a(), tile.m_tile * kTileM, k, full);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      CopyOperand<kTileN, kBRowsHoldK != 0>(to + kBytesA + i * kTileN * kBlockK * 2,
                                            kTogether == 1 ? b.Of(tile) : *b.of[i],
                                            tile.batch_of_b(), tile.n_tile * kTileN, k, full);
    }
  });
}

// The sums of the thread's warpgroup: in each strip pairs at row lane / 4 (and 8 below) of its
// warp's 16, column 8 j + lane % 4 * 2.
struct Sums {
  float of[kStrips][kSums];
};

// The first row of a warpgroup's strips in its tile.
__device__ __forceinline__ int FirstRow() {
  return kGroups == 1 ? 0 : (static_cast<int>(threadIdx.x / 128) - 1) * 64;
}

// issued(): before the wait for the last products.
template <class Issued>
__device__ __forceinline__ void MultiplyTile(Pipeline& pipe, int steps, Sums& sums, Issued issued) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kStrips * kSums; ++i) sums.of[i / kSums][i % kSums] = 0.0f;
  const auto release = [&](int stage) {  // the warp has read it
    if (lane == 0) BarrierArrive(pipe.empty + 8 * stage);
  };
  int previous = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    // 64 rows are kBoxBytes in either layout.
    const unsigned a_at = pipe.at() + FirstRow() * 128, b_at = pipe.at() + kBytesA;
    const unsigned long long a = kARowsHoldK ? RowsOfK(a_at) : RowsOfOneK(a_at, kBoxBytes);
    const unsigned long long b = kBRowsHoldK ? RowsOfK(b_at) : RowsOfOneK(b_at, kBoxBytes);
    constexpr int kStepA = kARowsHoldK ? 2 : 128, kStepB = kBRowsHoldK ? 2 : 128;
    BarrierWait(pipe.full + 8 * pipe.stage, pipe.parity);
    __syncwarp();
    MmaFence();
#pragma unroll
    for (int k = 0; k < kBlockK / 16; ++k) {
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip)
        Mma<1>(sums.of[strip], a + strip * (kBoxBytes / 16) + k * kStepA, b + k * kStepB);
    }
    MmaCommit();
    MmaWait<1>(sums.of[0]);  // of the step before
    if (step > 0) release(previous);
    __syncwarp();
    previous = pipe.stage;
    pipe.Next();
  }
  issued();
#pragma unroll
  for (int strip = 0; strip < kStrips; ++strip) MmaWait<0>(sums.of[strip]);
  release(previous);
}

// Halves of a warp's chunk: 16 rows of 64 columns, 128 bytes each, in shared memory. The 16-byte
// piece p of row r stands at piece p ^ (r % 8). A thread holds pairs as in its sums: at (row,
// column), (row + 8, column), (row, column + 8), ...
enum : int { kPairsOfChunk = 16, kPiecesOfLane = 4, kBytesOfChunk = 2048 };
struct Chunk {
  unsigned memory;

  // A lane's piece i of the rows.
  static __device__ __forceinline__ int PieceRow(int i) {
    return i * 4 + static_cast<int>(threadIdx.x % 32 / 8);
  }
  static __device__ __forceinline__ int PieceColumn() {
    return static_cast<int>(threadIdx.x % 8) * 8;
  }
  __device__ __forceinline__ unsigned Piece(int i) const {
    return memory + PieceRow(i) * 128 + (threadIdx.x % 8 ^ PieceRow(i) % 8) * 16;
  }
  // The row of 16 bytes that a lane names of the four matrices at 16 columns.
  __device__ __forceinline__ unsigned Matrices(int columns) const {
    const int row = threadIdx.x % 16, piece = columns * 2 + static_cast<int>(threadIdx.x % 32 / 16);
    return memory + row * 128 + (piece ^ row % 8) * 16;
  }
  __device__ __forceinline__ void FromRows(const uint4 (&pieces)[kPiecesOfLane],
                                           unsigned (&pairs)[kPairsOfChunk / 4][4]) const {
    __syncwarp();  // no lane reads what was there before
#pragma unroll
    for (int i = 0; i < kPiecesOfLane; ++i) StoreShared(Piece(i), pieces[i]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPairsOfChunk / 4; ++i) LoadMatrices(Matrices(i), pairs[i]);
  }
  __device__ __forceinline__ void ToRows(const unsigned (&pairs)[kPairsOfChunk / 4][4],
                                         uint4 (&pieces)[kPiecesOfLane]) const {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPairsOfChunk / 4; ++i) StoreMatrices(Matrices(i), pairs[i]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPiecesOfLane; ++i) pieces[i] = LoadShared(Piece(i));
  }
};

// The sums of two neighbours of a row.
template <int kProducts>
struct PairOfSums {
  float of[kProducts][2];
  __device__ __forceinline__ void Set(int i, float sum) { of[i / 2][i % 2] = sum; }
};
template <>
struct PairOfSums<1> {
  float of[2];
  __device__ __forceinline__ void Set(int i, float sum) { of[i] = sum; }
};

// What a thread does with its sums, a chunk of pairs after the other. What the epilogue reads is
// loaded before the products and one or two chunks ahead, because the memory's latency is as long
// as a tile's products may be.
template <class AllEpilogues>
struct Giver {
  using Epilogue = typename AllEpilogues::One;
  enum : int {
    kChunksOfStrip = kTileN / 64,
    kChunks = kStrips * kChunksOfStrip,
    kWide = Epilogue::kWide,
    kAhead = kWide <= 1 ? 2 : 1,  // chunks of what is wide
    kOutputs = static_cast<int>(sizeof(typename Epilogue::template Outputs<2>)) / 4
  };
  enum : bool { kByRows = Epilogue::kHalfRows && kN % 8 == 0 };
  using Thin = typename Epilogue::template Thin<2>;
  using Inputs = typename Epilogue::template Inputs<2>;
  using WideRow = typename Epilogue::template Wide<8>;

  const Epilogue epilogue;
  const Unit& unit;
  Thin thin[kPairsOfChunk];
  WideRow wide[kAhead][kPiecesOfLane];

  __device__ __forceinline__ Giver(const AllEpilogues& all, const Unit& u)
      : epilogue(all.Of(u.tile.batch)), unit(u) {
    if (!kByRows || !unit.is_whole()) return;
    LoadThin(0);
#pragma unroll
    for (int chunk = 0; chunk < kAhead; ++chunk) LoadWide(chunk);
  }

  __device__ __forceinline__ void Give(float* __restrict__ partial, const Sums& sums,
                                       const Chunk& memory) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if constexpr (kTogether > 1) {
        GiveRows(chunk, sums, memory);
      } else {
        if (!unit.is_whole()) {
          GivePart(chunk, partial, sums);
        } else if constexpr (kByRows) {
          GiveRows(chunk, sums, memory);
        } else {
          GivePairs(chunk, sums);
        }
      }
    }
  }

 private:
  // Sum `i` of a pair, of one of the products together.
  static __device__ __forceinline__ float Of(const Sums& sums, int chunk, int pair, int i,
                                             int product = 0) {
    const int at = (chunk % kChunksOfStrip * kPairsOfChunk + pair) * 2 + i;
    return sums.of[chunk / kChunksOfStrip][product * (kTileN / 2) + at];
  }
  // Of a chunk and of a pair in their tile.
  static __device__ __forceinline__ int ChunkRow(int chunk) {
    return FirstRow() + static_cast<int>(threadIdx.x / 32 % 4) * 16 + chunk / kChunksOfStrip * 64;
  }
  static __device__ __forceinline__ int ChunkColumn(int chunk) {
    return chunk % kChunksOfStrip * 64;
  }
  static __device__ __forceinline__ int PairRow(int chunk, int pair) {
    return ChunkRow(chunk) + static_cast<int>(threadIdx.x % 32 / 4) + pair % 2 * 8;
  }
  static __device__ __forceinline__ int PairColumn(int chunk, int pair) {
    return ChunkColumn(chunk) + pair / 2 * 8 + static_cast<int>(threadIdx.x % 4) * 2;
  }
  __device__ __forceinline__ int Row(int row_of_tile) const {
    return unit.tile.m_tile * kTileM + row_of_tile;
  }
  __device__ __forceinline__ int Column(int column_of_tile) const {
    return unit.tile.n_tile * kTileN + column_of_tile;
  }
  __device__ __forceinline__ void LoadThin(int chunk) {
#pragma unroll
    for (int pair = 0; pair < kPairsOfChunk; ++pair) {
      thin[pair] =
          epilogue.template LoadThin<2>(unit.tile.batch, InsideRow(Row(PairRow(chunk, pair))),
                                        InsideColumn<2>(Column(PairColumn(chunk, pair))));
    }
  }
  __device__ __forceinline__ void LoadWide(int chunk) {
    if constexpr (kWide > 0) {
      const int column = InsideColumn<8>(Column(ChunkColumn(chunk) + Chunk::PieceColumn()));
#pragma unroll
      for (int i = 0; i < kPiecesOfLane; ++i) {
        wide[chunk % kAhead][i] = epilogue.template LoadWide<8>(
            unit.tile.batch, InsideRow(Row(ChunkRow(chunk) + Chunk::PieceRow(i))), column);
      }
    }
  }

  // Sums of a part, for `combine`.
  __device__ __forceinline__ void GivePart(int chunk, float* __restrict__ partial,
                                           const Sums& sums) const {
#pragma unroll
    for (int pair = 0; pair < kPairsOfChunk; ++pair) {
      const long long row = static_cast<long long>(unit.part) * kTileM + PairRow(chunk, pair);
      *reinterpret_cast<float2*>(partial + row * kTileN + PairColumn(chunk, pair)) =
          make_float2(Of(sums, chunk, pair, 0), Of(sums, chunk, pair, 1));
    }
  }

  // Pairs as they are, inside the matrix.
  __device__ __forceinline__ void GivePairs(int chunk, const Sums& sums) const {
    Inputs in[kPairsOfChunk];
    if constexpr (kN % 2 == 0) {
#pragma unroll
      for (int pair = 0; pair < kPairsOfChunk; ++pair) {
        in[pair] = epilogue.template Load<2>(unit.tile.batch, InsideRow(Row(PairRow(chunk, pair))),
                                             InsideColumn<2>(Column(PairColumn(chunk, pair))));
      }
    }
#pragma unroll
    for (int pair = 0; pair < kPairsOfChunk; ++pair) {
      const int row = Row(PairRow(chunk, pair)), column = Column(PairColumn(chunk, pair));
      const float two[2] = {Of(sums, chunk, pair, 0), Of(sums, chunk, pair, 1)};
      if (row >= kM) continue;
      if constexpr (kN % 2 == 0) {
        if (column < kN) epilogue.template Store<2>(unit.tile.batch, row, column, two, in[pair]);
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float one[1] = {two[i]};
          if (column + i < kN) {
            epilogue.template Store<1>(unit.tile.batch, row, column + i, one,
                                       epilogue.template Load<1>(unit.tile.batch, row, column + i));
          }
        }
      }
    }
  }

  // Through shared memory, so that lanes load and store 16 neighbouring bytes.
  __device__ __forceinline__ void GiveRows(int chunk, const Sums& sums, const Chunk& memory) {
    unsigned read[kWide > 0 ? kWide : 1][kPairsOfChunk / 4][4];
    unsigned results[kOutputs][kPairsOfChunk / 4][4];
#pragma unroll
    for (int w = 0; w < kWide; ++w) {
      uint4 pieces[kPiecesOfLane];
#pragma unroll
      for (int i = 0; i < kPiecesOfLane; ++i)
        memcpy(&pieces[i], reinterpret_cast<const char*>(&wide[chunk % kAhead][i]) + 16 * w, 16);
      memory.FromRows(pieces, read[w]);
    }
    if (chunk + kAhead < kChunks) LoadWide(chunk + kAhead);
#pragma unroll
    for (int pair = 0; pair < kPairsOfChunk; ++pair) {
      Inputs in;
      in.thin = thin[pair];
#pragma unroll
      for (int w = 0; w < kWide; ++w)
        memcpy(reinterpret_cast<char*>(&in.wide) + 4 * w, &read[w][pair / 4][pair % 4], 4);
      PairOfSums<kTogether> two;
#pragma unroll
      for (int i = 0; i < 2 * kTogether; ++i) two.Set(i, Of(sums, chunk, pair, i % 2, i / 2));
      const typename Epilogue::template Outputs<2> out = epilogue.template Compute<2>(
          unit.tile.batch, Row(PairRow(chunk, pair)), Column(PairColumn(chunk, pair)), two.of, in);
#pragma unroll
      for (int o = 0; o < kOutputs; ++o)
        memcpy(&results[o][pair / 4][pair % 4], reinterpret_cast<const char*>(&out) + 4 * o, 4);
    }
    if (chunk + 1 < kChunks) LoadThin(chunk + 1);
    typename Epilogue::template Outputs<8> out[kPiecesOfLane];
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      uint4 pieces[kPiecesOfLane];
      memory.ToRows(results[o], pieces);
#pragma unroll
      for (int i = 0; i < kPiecesOfLane; ++i)
        memcpy(reinterpret_cast<char*>(&out[i]) + 16 * o, &pieces[i], 16);
    }
    const int column = Column(ChunkColumn(chunk) + Chunk::PieceColumn());
#pragma unroll
    for (int i = 0; i < kPiecesOfLane; ++i) {
      const int row = Row(ChunkRow(chunk) + Chunk::PieceRow(i));
      if ((kM % kTileM == 0 || row < kM) && (kN % kTileN == 0 || column < kN))
        epilogue.template Put<8>(unit.tile.batch, row, column, out[i]);
    }
  }
};

// Where each warpgroup has tiles of its own, they multiply in turns, in the order of the copies.
// Else one would wait for a stage that is to be filled several times before: a wait for a barrier
// distinguishes its phases by parity alone.
struct Turns {
  int group;  // the thread's warpgroup

  __device__ __forceinline__ void Begin() const {
    if (kGroups == 1 && group == 1) Arrive(0);
  }
  __device__ __forceinline__ void Wait() const {
    if (kGroups == 1) NamedBarrier(kFirst + group, kConsumers);
  }
  __device__ __forceinline__ void Pass() const {
    if (kGroups == 1) Arrive(1 - group);
  }

 private:
  enum : int { kFirst = 2 };  // of the named barriers
  static __device__ __forceinline__ void Arrive(int of) {
    NamedBarrierArrive(kFirst + of, kConsumers);
  }
};

template <class Epilogue>
__device__ __forceinline__ void MultiplyTiles(Pipeline pipe, const Epilogue& epilogue,
                                              float* __restrict__ partial) {
  const Turns turns = {static_cast<int>(threadIdx.x / 128) - 1};
  __shared__ __align__(128) unsigned char chunks[kConsumers / 32][kBytesOfChunk];
  const Chunk memory = {SharedAddress(chunks[threadIdx.x / 32 - 4])};
  turns.Begin();
  int turn = 0;
  for (int number = blockIdx.x; number < kUnits; number += gridDim.x, ++turn) {
    const Unit unit(number);
    if (kGroups == 1 && turn % 2 != turns.group) {
      pipe.Skip(unit.steps);
      continue;
    }
    Giver<Epilogue> giver(epilogue, unit);
    Sums sums;
    turns.Wait();
    MultiplyTile(pipe, unit.steps, sums, [&] { turns.Pass(); });
    giver.Give(partial, sums, memory);
  }
}

template <class Epilogue>
__device__ __forceinline__ void Product(const Epilogue& epilogue, const CfTensorMap& a,
                                        const Maps& b, float* __restrict__ partial) {
  RunPipeline([&](Pipeline pipe) { CopyTiles(pipe, a, b); },
              [&](Pipeline pipe) { MultiplyTiles(pipe, epilogue, partial); });
}
