// What products in float32 do with their sums. Tiles that cannot be split, and sums that a split
// would spoil, are computed in float32: see docs/products.md. `Epilogue` is generated, see
// tiles/epilogue.h, columns of B have the slots of four_neighbours.cuh.
//
// A kernel has in front: kConsumers threads from kFirstConsumer on, which multiply, and
// ConsumerBarrier(), ConsumerBarrierOr(bool) for them; kStrips, of 16 rows, that each of their
// eight warps has of a tile.
static_assert(kTile == 128 && kConsumers == 256);
constexpr int kColumnBlocks = 16 / kStrips;  // of 8 slots of columns, of a warp

// The warp's first row and column in its tile.
__device__ __forceinline__ int FirstRow() {
  return static_cast<int>(threadIdx.x - kFirstConsumer) / 32 / kStrips * (16 * kStrips);
}
__device__ __forceinline__ int FirstColumn() {
  return static_cast<int>(threadIdx.x - kFirstConsumer) / 32 % kStrips * (8 * kColumnBlocks);
}

// 16 elements along k of 128 rows of A and of B, for tiles in float32.
constexpr int kSlowK = 16;
constexpr int kSlowPitch = kTile + 4;
constexpr int kSlowBytes = 2 * kSlowK * kSlowPitch * 4;

// Stores one sum inside of the matrix.
template <class Epilogue>
__device__ __forceinline__ void StoreOne(const Epilogue& epilogue, int batch, int row, int column,
                                         float sum) {
  const float one[1] = {sum};
  epilogue.template Store<1>(batch, row, column, one,
                             epilogue.template Load<1>(batch, row, column));
}

// Stores two neighbours of a row: the first is inside the matrix.
template <class Epilogue>
__device__ __forceinline__ void StoreTwo(const Epilogue& epilogue, int batch, int row, int column,
                                         const float (&sums)[2]) {
  if constexpr (kN % 2 == 0) {
    epilogue.template Store<2>(batch, row, column, sums,
                               epilogue.template Load<2>(batch, row, column));
  } else {
    StoreOne(epilogue, batch, row, column, sums[0]);
    if (column + 1 < kN) StoreOne(epilogue, batch, row, column + 1, sums[1]);
  }
}

// Four neighbours of a row, which `combine` adds up.
__device__ __forceinline__ void StorePart(float* __restrict__ partial, const Unit& unit, int row,
                                          int column, const float (&sums)[4]) {
  const int at = row % kTile * kTile + column % kTile;
  *reinterpret_cast<float4*>(partial + static_cast<long long>(unit.part) * kTile * kTile + at) =
      make_float4(sums[0], sums[1], sums[2], sums[3]);
}

template <int kRows, int kLead, int kStep>
__device__ __forceinline__ void LoadSlow(const float* __restrict__ x, float* to, int thread,
                                         int row0, int k0, int end) {
#pragma unroll
  for (int i = 0; i < kSlowK * kTile / kConsumers; ++i) {
    const int e = i * kConsumers + thread;
    const int row = kStep == 1 ? e / kSlowK : e % kTile, k = kStep == 1 ? e % kSlowK : e / kTile;
    const bool inside = row0 + row < kRows && k0 + k < end;
    to[k * kSlowPitch + row] =
        inside
            ? x[static_cast<long long>(row0 + row) * kLead + static_cast<long long>(k0 + k) * kStep]
            : 0.0f;
  }
}

// A tile in float32: 8 x 8 results a thread, at rows ty * 4 + {0..3, 64..67}, columns likewise.
template <class Epilogue>
__device__ __forceinline__ void SlowTile(const Epilogue& epilogue, const float* __restrict__ a,
                                         const float* __restrict__ b, float* __restrict__ partial,
                                         const Unit& unit, float* memory) {
  float* as = memory;  // [kSlowK][kSlowPitch]
  float* bs = memory + kSlowK * kSlowPitch;
  const int thread = threadIdx.x - kFirstConsumer;
  const int tx = thread % 16, ty = thread / 16;
  const int m0 = unit.tile.m_tile * kTile, n0 = unit.tile.n_tile * kTile;
  const int begin = unit.first_step * kBlockK;
  const int end = min((unit.first_step + unit.steps) * kBlockK, kK);
  float total[8][8], part[8][8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) total[i][j] = 0.0f;
  }
#pragma unroll 1
  for (int outer = begin; outer < end; outer += kBlockK) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) part[i][j] = 0.0f;
    }
#pragma unroll 1
    for (int k0 = outer; k0 < min(outer + kBlockK, end); k0 += kSlowK) {
      ConsumerBarrier();  // no thread reads the former step any more
      LoadSlow<kM, kARow, kAStep>(a, as, thread, m0, k0, end);
      LoadSlow<kN, kBRow, kBStep>(b, bs, thread, n0, k0, end);
      ConsumerBarrier();
#pragma unroll 2
      for (int k = 0; k < kSlowK; ++k) {
        const float4 a0 = *reinterpret_cast<const float4*>(as + k * kSlowPitch + ty * 4);
        const float4 a1 = *reinterpret_cast<const float4*>(as + k * kSlowPitch + ty * 4 + 64);
        const float4 b0 = *reinterpret_cast<const float4*>(bs + k * kSlowPitch + tx * 4);
        const float4 b1 = *reinterpret_cast<const float4*>(bs + k * kSlowPitch + tx * 4 + 64);
        const float fa[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
        const float fb[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
#pragma unroll
          for (int j = 0; j < 8; ++j) part[i][j] = fmaf(fa[i], fb[j], part[i][j]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) total[i][j] += part[i][j];
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = m0 + ty * 4 + (i % 4) + (i / 4) * 64;
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
      const int column = n0 + tx * 4 + (j / 4) * 64;
      const float sums[4] = {total[i][j], total[i][j + 1], total[i][j + 2], total[i][j + 3]};
      if (!unit.is_whole()) {
        StorePart(partial, unit, row, column, sums);
        continue;
      }
#pragma unroll
      for (int c = 0; c < 4; c += 2) {
        const float two[2] = {sums[c], sums[c + 1]};
        if (row < kM && column + c < kN) StoreTwo(epilogue, unit.tile.batch, row, column + c, two);
      }
    }
  }
}

// Fours of neighbours for which all that the epilogue reads is on its way together: as many as
// registers hold. With several strips there are none for that; at edges, addresses take some.
template <class Epilogue>
struct Ahead {
  enum : int {
    kWide = Epilogue::kWide > 0 ? static_cast<int>(sizeof(typename Epilogue::template Wide<4>)) : 0,
    kWords = static_cast<int>(sizeof(typename Epilogue::template Thin<4>)) / 4 + kWide / 4,
    kMostWords = kM % kTile == 0 && kN % kTile == 0 ? 64 : 16,
    kFitting = kWords == 0 ? 2 : kMostWords / kWords,
    kFours = kStrips > 1      ? 1
             : kFitting >= 16 ? 16
             : kFitting >= 8  ? 8
             : kFitting >= 4  ? 4
             : kFitting >= 2  ? 2
                              : 1
  };
};

// A tile's scales.
struct TileScales {
  const float* __restrict__ a;  // at the tile's first row
  const float* __restrict__ b;  // at its first column
};

// Four neighbours of a row: a thread has two fours of each pair of its warp's blocks, which has 16
// rows and 16 columns, at row lane / 4, column lane % 4 * 4, and 8 rows below. Scales one of them
// to `scaled`; returns a bit for each sum that is unsure. sums: all of the thread's, in the order
// of GiveTile. four: 2 * pair, and 1 for the lower rows.
__device__ __forceinline__ unsigned ScaleFour(float of_row, const float4& of_columns,
                                              const float (&sums)[64], int four,
                                              float (&scaled)[4]) {
  const float columns[4] = {of_columns.x, of_columns.y, of_columns.z, of_columns.w};
  unsigned unsure = 0;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    scaled[c] = sums[four / 2 * 8 + c / 2 * 4 + four % 2 * 2 + c % 2] * CleanScale(of_row) *
                CleanScale(columns[c]);
    unsure |= static_cast<unsigned>(IsUnsure(scaled[c], of_row, columns[c])) << c;
  }
  return unsure;
}

// Gives the tile's sums; false: it has a row or column that is not split, or too many of its sums
// are unsure, and what was given does not hold. sums: the thread's, before they are scaled, four of
// each of its warp's blocks, in order of their slots, then of strips.
template <class Epilogue>
__device__ __forceinline__ bool GiveTile(const Epilogue& epilogue, const float* __restrict__ a,
                                         const float* __restrict__ b,
                                         const float* __restrict__ scales_a,
                                         const float* __restrict__ scales_b,
                                         float* __restrict__ partial, const Unit& unit,
                                         const float (&sums)[64]) {
  const int thread = threadIdx.x - kFirstConsumer;
  const int lane = threadIdx.x % 32;
  const int m0 = unit.tile.m_tile * kTile, n0 = unit.tile.n_tile * kTile;
  const TileScales scales = {scales_a + m0, scales_b + n0};
  const float mine = thread < 128 ? scales.a[thread] : scales.b[thread - 128];
  if (ConsumerBarrierOr(mine < 0.0f)) return false;
  // Of the thread, in the tile.
  constexpr int kPairsOfStrip = kColumnBlocks / 2;
  int first_row = FirstRow() + lane / 4;
  int first = FirstColumn() + lane % 4 * 4;
  const auto row_of = [&](int four) {
    return first_row + four / 2 / kPairsOfStrip * 16 + four % 2 * 8;
  };
  const auto column_of = [&](int four) { return first + four / 2 % kPairsOfStrip * 16; };
  float4 of_columns;       // of a pair
  if (!unit.is_whole()) {  // `combine` looks at the sums
#pragma unroll
    for (int four = 0; four < 16; ++four) {
      if (four % 2 == 0) of_columns = *reinterpret_cast<const float4*>(scales.b + column_of(four));
      float scaled[4];
      ScaleFour(scales.a[row_of(four)], of_columns, sums, four, scaled);
      StorePart(partial, unit, row_of(four), column_of(four), scaled);
      if (four % 2 == 1) asm volatile("" : "+r"(first), "+r"(first_row));
    }
    return true;
  }
  const auto inside = [&](int row, int column) {
    return (kM % kTile == 0 || m0 + row < kM) && (kN % kTile == 0 || n0 + column < kN);
  };
  unsigned long long unsure = 0;  // a bit for each of the thread's sums
  constexpr int kAhead = Ahead<Epilogue>::kFours, kTogether = kAhead > 1 ? 2 : 1;
  constexpr int kOfFour = 4 / kNeighbours;
#pragma unroll
  for (int four0 = 0; four0 < 16; four0 += kAhead) {
    typename Epilogue::template Inputs<kNeighbours> inputs[kAhead][kOfFour];
#pragma unroll
    for (int i = 0; i < kAhead * kOfFour; ++i) {
      const int four = four0 + i / kOfFour, n = i % kOfFour;
      const int row = row_of(four), column = column_of(four) + n * kNeighbours;
      if (inside(row, column)) {
        inputs[four - four0][n] =
            epilogue.template Load<kNeighbours>(unit.tile.batch, m0 + row, n0 + column);
      }
    }
#pragma unroll
    for (int next = four0; next < four0 + kAhead; next += kTogether) {
      float of_rows[kTogether], scaled[kTogether][4];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) of_rows[i] = scales.a[row_of(next + i)];
      if (next % 2 == 0) of_columns = *reinterpret_cast<const float4*>(scales.b + column_of(next));
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const unsigned bits = ScaleFour(of_rows[i], of_columns, sums, next + i, scaled[i]);
        unsure |= static_cast<unsigned long long>(bits) << (4 * (next + i));
      }
#pragma unroll
      for (int i = 0; i < kTogether * kOfFour; ++i) {
        const int four = next + i / kOfFour, n = i % kOfFour;
        const int row = row_of(four), column = column_of(four) + n * kNeighbours;
        if (!inside(row, column)) continue;
        float neighbours[kNeighbours];
#pragma unroll
        for (int c = 0; c < kNeighbours; ++c)
          neighbours[c] = scaled[i / kOfFour][n * kNeighbours + c];
        epilogue.template Store<kNeighbours>(unit.tile.batch, m0 + row, n0 + column, neighbours,
                                             inputs[four - four0][n]);
      }
      // Else the compiler has all columns' addresses in registers at once.
      asm volatile("" : "+r"(first), "+r"(first_row));
    }
  }
  if (ConsumerBarrierOr(__popcll(unsure) > 4)) return false;
  const int warps_row = m0 + FirstRow(), warps_column = n0 + FirstColumn();
  while (const unsigned owners = __ballot_sync(0xffffffffu, unsure != 0)) {
    const int owner = __ffs(owners) - 1;
    const int one = __shfl_sync(0xffffffffu, __ffsll(static_cast<long long>(unsure)) - 1, owner);
    const int pair = one / 8;
    const int at_row = warps_row + pair / kPairsOfStrip * 16 + one % 8 / 4 * 8 + owner / 4;
    const int at_column = warps_column + pair % kPairsOfStrip * 16 + owner % 4 * 4 + one % 4;
    const float sum = SumAgain(a, b, at_row, at_column);
    if (lane == owner) {  // inside the matrix: beyond it all is zero
      StoreOne(epilogue, unit.tile.batch, at_row, at_column, sum);
      unsure &= unsure - 1;
    }
  }
  return true;
}

// The parts of sums together: a block 512 sums of a tile, a thread two neighbours of a row.
template <class AllEpilogues>
__device__ __forceinline__ void Combine(const AllEpilogues& all, const float* __restrict__ a,
                                        const MatricesB& b, const float* __restrict__ a_scales,
                                        const float* __restrict__ b_scales,
                                        const float* __restrict__ partial) {
  constexpr int kBlocks = kTile * kTile / 512;  // of a tile
  const int number = blockIdx.x / kBlocks;
  const int at = (blockIdx.x % kBlocks * 256 + threadIdx.x) * 2;
  const Tile tile(kWhole + number);
  const int row = tile.m_tile * kTile + at / kTile, column = tile.n_tile * kTile + at % kTile;
  const float* from = partial + static_cast<long long>(number) * kParts * kTile * kTile + at;
  float sums[2] = {0.0f, 0.0f};
#pragma unroll 4
  for (int part = 0; part < kParts; ++part) {
    const float2 x = *reinterpret_cast<const float2*>(from + part * kTile * kTile);
    sums[0] += x.x;
    sums[1] += x.y;
  }
  const float row_scale = a_scales[tile.batch_of_a() * kRowsA + row];
  const float2 s = *reinterpret_cast<const float2*>(b_scales + tile.batch_of_b() * kRowsB + column);
  const bool slow = row_scale < 0.0f;  // computed in float32 as it is; the columns' likewise
  unsigned unsure = 0;
  if (!slow && s.x >= 0.0f && IsUnsure(sums[0], row_scale, s.x)) unsure |= 1u;
  if (!slow && s.y >= 0.0f && IsUnsure(sums[1], row_scale, s.y)) unsure |= 2u;
  // A warp has neighbours of one row.
  while (const unsigned owners = __ballot_sync(0xffffffffu, unsure != 0)) {
    const int owner = __ffs(owners) - 1;
    const int one = __shfl_sync(0xffffffffu, __ffs(static_cast<int>(unsure)) - 1, owner);
    const int column_of_one = __shfl_sync(0xffffffffu, column, owner) + one;
    const float again = SumAgain(a + tile.batch * kABatch, b.Of(tile.batch), row, column_of_one);
    if (static_cast<int>(threadIdx.x % 32) == owner) {
      (one == 0 ? sums[0] : sums[1]) = again;
      unsure &= unsure - 1;
    }
  }
  if (row < kM && column < kN) StoreTwo(all.Of(tile.batch), tile.batch, row, column, sums);
}
