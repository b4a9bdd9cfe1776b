// product: out = epilogue(A B) in float32, where B has few columns. The sums: few_columns_sm90.cuh.
// Those that a split would spoil are computed in float32: see docs/products.md.
// `Epilogue` has the region's rows and columns: see tile_sums_sm90.cuh. The blocks: see
// pipeline_sm90.cuh.
constexpr int kMostBad = kTileN / 8;  // columns that are not split, of a tile that is

// Whether `sum` is to be recomputed in float32: it is not finite, its column is not split, or
// it is so small that lost bits might matter. Each element below kLossy loses up to 2^-25, next to
// a partner of up to 2^15; a thread has 16 of them in a step of a row. A sum that is 2^20 times the
// bound on these errors is sure.
__device__ __forceinline__ bool IsUnsureOfFew(float sum, float row_lossy, float row_largest,
                                              const Column& column) {
  const bool zero = (__float_as_uint(column.scale) & kAllZero) != 0;
  const float errors = 16.0f * row_lossy + column.lossy * row_largest;  // in 2^-10
  const float bound = zero ? 0.0f : errors * 1024.0f * CleanScale(column.scale);
  const float size = fabsf(sum);
  return column.scale < 0.0f || !(size >= bound && size <= 3.4e38f);
}

// Whether more columns than a few are not split. For all threads of a warp.
__device__ __forceinline__ bool HasManyBad(const Column* __restrict__ columns) {
  int bad = 0;
#pragma unroll
  for (int i = 0; i < kTileN; i += 32) {
    const int column = i + threadIdx.x % 32;
    bad += __popc(__ballot_sync(0xffffffffu, column < kTileN && columns[column].scale < 0.0f));
  }
  return bad > kMostBad;
}

// Multiplies the sums by B's scales, those of the tile. A bit for each that is inside the matrix
// and unsure.
__device__ __forceinline__ unsigned long long ScaleSums(const Column* __restrict__ columns,
                                                        const Unit& unit, Sums& sums) {
  unsigned long long unsure = 0;
  const int thread = ThreadHere();
  const int row = unit.tile.m_tile * kTileM + RowOfThread(thread);
  const int columns_left = kN - unit.tile.n_tile * kTileN;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const int column = ColumnOfSum(thread, i), half = i % 4 / 2;
    sums.of[i] *= CleanScale(columns[column].scale);
    const bool one = row + half * 8 < kM && column < columns_left &&
                     IsUnsureOfFew(sums.of[i], sums.bounds.lossy[half], sums.bounds.largest[half],
                                   columns[column]);
    unsure |= static_cast<unsigned long long>(one) << i;
  }
  return unsure;
}

// Two neighbours of a row that are inside the matrix as far as kN allows.
template <class Epilogue>
__device__ __forceinline__ void StoreTwo(const Epilogue& epilogue, int batch, int row, int column,
                                         float first, float second) {
  if (row >= kM || column >= kN) return;
  if constexpr (kExchanged == 0 && kN % 2 == 0) {
    const float two[2] = {first, second};
    epilogue.template Store<2>(batch, row, column, two,
                               epilogue.template Load<2>(batch, row, column));
  } else {
    StoreOne(epilogue, batch, row, column, first);
    if (column + 1 < kN) StoreOne(epilogue, batch, row, column + 1, second);
  }
}

// Where a sum of a tile's part stands, so that neighbours in the region's rows are neighbours.
__device__ __forceinline__ int PlaceOfPart(int row, int column) {
  return kExchanged != 0 ? column * kTileM + row : row * kTileN + column;
}

// What a unit does with its sums: a part is left for `combine`.
template <class Epilogue>
__device__ __forceinline__ void GiveSums(const Epilogue& epilogue, float* __restrict__ partial,
                                         const Unit& unit, const Sums& sums) {
  float* to = partial + static_cast<long long>(unit.part) * kTileM * kTileN;
  const int m0 = unit.tile.m_tile * kTileM, n0 = unit.tile.n_tile * kTileN;
  const int thread = ThreadHere();
#pragma unroll
  for (int j = 0; j < kTileN / 8; ++j) {
    const int column = ColumnOfSum(thread, 4 * j);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = RowOfThread(thread) + half * 8;
      const float first = sums.of[4 * j + 2 * half], second = sums.of[4 * j + 2 * half + 1];
      if (unit.is_whole()) {
        StoreTwo(epilogue, unit.tile.batch, m0 + row, n0 + column, first, second);
      } else {
        to[PlaceOfPart(row, column)] = first;
        to[PlaceOfPart(row, column + 1)] = second;
      }
    }
  }
}

struct FewOperands {
  const float* __restrict__ a;
  const float* __restrict__ b;
  const Column* __restrict__ columns;
};

// `bounds`: of the rows of each part, lossy and largest.
template <class Epilogue>
__device__ __forceinline__ void MultiplyTiles(RingA ring_a, RingB ring_b, const Epilogue& epilogue,
                                              const FewOperands& of, float* __restrict__ partial,
                                              float2* __restrict__ bounds, float* slow_memory) {
  for (int number = blockIdx.x; number < kUnits; number += gridDim.x) {
    Sums sums;
    MultiplyTile(ring_a, ring_b, Unit(number).steps, sums);
    int same = number;  // so that nothing of the unit is held in registers during the sums
    asm volatile("" : "+r"(same));
    const Unit unit(same);
    const float* a = of.a + unit.tile.batch * kABatch;
    const float* b = of.b + unit.tile.batch * kBBatch;
    const Column* columns = of.columns + ColumnTile(unit.tile) * kTileN;
    unsigned long long unsure = ScaleSums(columns, unit, sums);
    bool slow = HasManyBad(columns);
    if (unit.is_whole()) {
      slow = NamedBarrierOr(1, kConsumers, slow || __popcll(unsure) > 4);
    } else if (const int thread = ThreadHere(); thread % 4 == 0) {
      float2* to = bounds + static_cast<long long>(unit.part) * kTileM + RowOfThread(thread);
      to[0] = make_float2(sums.bounds.lossy[0], sums.bounds.largest[0]);
      to[8] = make_float2(sums.bounds.lossy[1], sums.bounds.largest[1]);
    }
    if (slow) SlowSums(a, b, unit, slow_memory, sums);
    GiveSums(epilogue, partial, unit, sums);
    if (slow || !unit.is_whole()) continue;
    GiveAgain(epilogue, a, b, unit, unsure);
  }
}

template <class Epilogue>
__device__ __forceinline__ void Product(const Epilogue& epilogue, const CfTensorMap& a_map,
                                        const unsigned char* __restrict__ b_tiles,
                                        const FewOperands& of, float* __restrict__ partial,
                                        float2* __restrict__ bounds) {
  extern __shared__ __align__(1024) unsigned char dynamic_memory[];
  __shared__ __align__(16) float slow_memory[kSlowFloats];
  __shared__ __align__(8) unsigned long long barriers[RingA::kBarriers + RingB::kBarriers];
  const unsigned memory = (SharedAddress(dynamic_memory) + 1023u) & ~1023u;
  const RingA ring_a(memory, SharedAddress(barriers));
  const RingB ring_b(memory + kStages * kBytesA, SharedAddress(barriers + RingA::kBarriers));
  if (threadIdx.x == 0) {
    ring_a.Init();
    ring_b.Init();
    BarrierInitDone();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    LowerRegisters<24>();
    if (threadIdx.x == 0) CopyRows(ring_a, a_map);
    if (threadIdx.x == 32) CopyColumns(ring_b, b_tiles);
  } else {
    RaiseRegisters<240>();
    MultiplyTiles(ring_a, ring_b, epilogue, of, partial, bounds, slow_memory);
  }
}

// The parts of sums together: a block 256 sums of a tile.
template <class Epilogue>
__device__ __forceinline__ void Combine(const Epilogue& epilogue, const FewOperands& of,
                                        const float* __restrict__ partial,
                                        const float2* __restrict__ bounds) {
  constexpr int kSize = kTileM * kTileN, kBlocks = kSize / 256;  // of a tile
  const int number = blockIdx.x / kBlocks, at = blockIdx.x % kBlocks * 256 + threadIdx.x;
  const int row = kExchanged != 0 ? at % kTileM : at / kTileN;
  const int column = kExchanged != 0 ? at / kTileM : at % kTileN;
  const Tile tile(kWhole + number);
  const long long first = static_cast<long long>(number) * kParts;
  float sum = 0.0f, lossy = 0.0f, largest = 0.0f;
#pragma unroll 4
  for (int part = 0; part < kParts; ++part) {
    sum += partial[(first + part) * kSize + at];
    const float2 bound = bounds[(first + part) * kTileM + row];
    lossy += bound.x;
    largest = fmaxf(largest, bound.y);
  }
  const Column* columns = of.columns + ColumnTile(tile) * kTileN;
  const int m = tile.m_tile * kTileM + row, n = tile.n_tile * kTileN + column;
  const bool inside = m < kM && n < kN;
  const bool slow = HasManyBad(columns);  // then `product` has computed it in float32
  bool unsure = inside && !slow && IsUnsureOfFew(sum, lossy, largest, columns[column]);
  while (const unsigned owners = __ballot_sync(0xffffffffu, unsure)) {
    const int owner = __ffs(owners) - 1;
    const float recomputed =
        SumAgain(of.a + tile.batch * kABatch, of.b + tile.batch * kBBatch,
                 __shfl_sync(0xffffffffu, m, owner), __shfl_sync(0xffffffffu, n, owner));
    if (static_cast<int>(threadIdx.x % 32) == owner) {
      sum = recomputed;
      unsure = false;
    }
  }
  if (inside) StoreOne(epilogue, tile.batch, m, n, sum);
}
