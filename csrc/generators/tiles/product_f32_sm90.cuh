// product: out = epilogue(A B) in float32 on Hopper's tensor cores, from the tiles of halves that
// `split` has made. Sums over 64 elements are added up in float32, because the tensor cores' own
// accumulators truncate. Tiles that cannot be split, and sums that a split would spoil, are
// computed in float32: see docs/numerics.md.
//
// `Epilogue` is generated, see tiles/epilogue.h. The blocks: see pipeline_sm90.cuh.

// 16 elements along k of 128 rows of A and of B, for tiles in float32.
constexpr int kSlowK = 16;
constexpr int kSlowPitch = kTile + 4;
constexpr int kSlowBytes = 2 * kSlowK * kSlowPitch * 4;

// One thread.
__device__ __forceinline__ void CopyTiles(Pipeline pipe, const unsigned char* __restrict__ a_tiles,
                                          const unsigned char* __restrict__ b_tiles) {
  for (int number = blockIdx.x; number < kUnits; number += gridDim.x) {
    const Unit unit(number);
    const Tile& tile = unit.tile;
    const long long of_a = static_cast<long long>(tile.batch_of_a()) * kTilesM + tile.m_tile;
    const long long of_b = static_cast<long long>(tile.batch_of_b()) * kTilesN + tile.n_tile;
    const unsigned char* a = a_tiles + (of_a * kSteps + unit.first_step) * kOperandBytes;
    const unsigned char* b = b_tiles + (of_b * kSteps + unit.first_step) * kOperandBytes;
#pragma unroll 1
    for (int step = 0; step < unit.steps; ++step) {
      const unsigned full = pipe.full + 8 * pipe.stage;
      BarrierWait(pipe.empty + 8 * pipe.stage, pipe.parity ^ 1u);
      BarrierExpect(full, kStageBytes);
      BulkCopy(pipe.at(), a, kOperandBytes, full);
      BulkCopy(pipe.at() + kOperandBytes, b, kOperandBytes, full);
      a += kOperandBytes;
      b += kOperandBytes;
      pipe.Next();
    }
  }
}

// Stores one sum inside of the matrix.
template <class Epilogue>
__device__ __forceinline__ void StoreOne(const Epilogue& epilogue, int batch, int row, int column,
                                         float sum) {
  const float one[1] = {sum};
  epilogue.template Store<1>(batch, row, column, one,
                             epilogue.template Load<1>(batch, row, column));
}

// Stores two neighbours of a row, of which the first is inside the matrix.
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

__device__ __forceinline__ void StorePart(float* __restrict__ partial, const Unit& unit, int row,
                                          int column, const float (&sums)[2]) {
  const int at = row % kTile * kTile + column % kTile;
  *reinterpret_cast<float2*>(partial + static_cast<long long>(unit.part) * kTile * kTile + at) =
      make_float2(sums[0], sums[1]);
}

// What a unit does with two neighbours of a row: a part is left for `combine`.
template <class Epilogue>
__device__ __forceinline__ void Give(const Epilogue& epilogue, float* __restrict__ partial,
                                     const Unit& unit, int row, int column,
                                     const float (&sums)[2]) {
  if (!unit.is_whole()) {
    StorePart(partial, unit, row, column, sums);
  } else if (row < kM && column < kN) {
    StoreTwo(epilogue, unit.tile.batch, row, column, sums);
  }
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
  const int thread = threadIdx.x - 128;
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
      NamedBarrier(1, kConsumers);  // nobody reads the former step any more
      LoadSlow<kM, kARow, kAStep>(a, as, thread, m0, k0, end);
      LoadSlow<kN, kBRow, kBStep>(b, bs, thread, n0, k0, end);
      NamedBarrier(1, kConsumers);
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
    for (int j = 0; j < 8; j += 2) {
      const int column = n0 + tx * 4 + (j % 4) + (j / 4) * 64;
      const float sums[2] = {total[i][j], total[i][j + 1]};
      Give(epilogue, partial, unit, row, column, sums);
    }
  }
}

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

// The sums of the thread's warpgroup: 64 rows, for each thread pairs at row lane / 4 (and 8 below)
// of its warp's 16, column 8 j + lane % 4 * 2.
struct Sums {
  float total[64], cross[64];
};

__device__ __forceinline__ void MultiplyTile(Pipeline& pipe, int steps, Sums& sums) {
  const int group = threadIdx.x / 128 - 1;
  const int lane = threadIdx.x % 32;
  float block[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) sums.total[i] = block[i] = sums.cross[i] = 0.0f;
  const auto release = [&](int stage) {  // the warp has read it
    if (lane == 0) BarrierArrive(pipe.empty + 8 * stage);
  };
  int previous = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const unsigned at = pipe.at();
    const unsigned long long ah = RowsOfK(at + group * 64 * 128);
    const unsigned long long al = RowsOfK(at + kPartBytes + group * 64 * 128);
    const unsigned long long bh = RowsOfK(at + kOperandBytes);
    const unsigned long long bl = RowsOfK(at + kOperandBytes + kPartBytes);
    BarrierWait(pipe.full + 8 * pipe.stage, pipe.parity);
    __syncwarp();
    MmaFence();
    Mma<0>(block, ah, bh);
#pragma unroll
    for (int k = 1; k < 4; ++k) Mma<1>(block, ah + 2 * k, bh + 2 * k);
    MmaCommit();
#pragma unroll
    for (int k = 0; k < 4; ++k) Mma<1>(sums.cross, ah + 2 * k, bl + 2 * k);
#pragma unroll
    for (int k = 0; k < 4; ++k) Mma<1>(sums.cross, al + 2 * k, bh + 2 * k);
    MmaCommit();
    MmaWait<1>(block);  // this step's h h' and all of the step before; the cross products run on
    if (step > 0) release(previous);
#pragma unroll
    for (int i = 0; i < 64; ++i) sums.total[i] += block[i];
    __syncwarp();
    previous = pipe.stage;
    pipe.Next();
  }
  MmaWait<0>(sums.cross);
  release(previous);
}

// Gives the tile's sums; false: it has a row or column that is not split, or too many of its sums
// are unsure, and what was given does not hold.
template <class Epilogue>
__device__ __forceinline__ bool GiveTile(const Epilogue& epilogue, const float* __restrict__ a,
                                         const float* __restrict__ b,
                                         const float* __restrict__ scales_a,
                                         const float* __restrict__ scales_b,
                                         float* __restrict__ partial, const Unit& unit,
                                         const Sums& sums) {
  const int thread = threadIdx.x - 128;
  const int lane = threadIdx.x % 32;
  const int m0 = unit.tile.m_tile * kTile, n0 = unit.tile.n_tile * kTile;
  const float mine = thread < 128 ? scales_a[m0 + thread] : scales_b[n0 + thread - 128];
  if (NamedBarrierOr(1, kConsumers, mine < 0.0f)) return false;
  const int first_row = m0 + thread / 128 * 64 + thread / 32 % 4 * 16;
  const int row = first_row + lane / 4;
  const float scale_0 = scales_a[row], scale_8 = scales_a[row + 8];
  const float clean_0 = CleanScale(scale_0), clean_8 = CleanScale(scale_8);
  unsigned long long unsure = 0;  // a bit for each of the thread's sums
  // Four columns at a time, so that what the epilogue reads is on its way together.
  constexpr int kAhead = 2;
  int first = n0 + lane % 4 * 2;
#pragma unroll
  for (int j0 = 0; j0 < 16; j0 += kAhead) {
    typename Epilogue::template Inputs<2> inputs[kAhead][2];
    if constexpr (kN % 2 == 0) {
#pragma unroll
      for (int i = 0; i < 2 * kAhead; ++i) {
        const int at = row + i % 2 * 8, column = first + (j0 + i / 2) * 8;
        if (unit.is_whole() && at < kM && column < kN)
          inputs[i / 2][i % 2] = epilogue.template Load<2>(unit.tile.batch, at, column);
      }
    }
#pragma unroll
    for (int j = j0; j < j0 + kAhead; ++j) {
      const int column = first + j * 8;
      const float2 s = *reinterpret_cast<const float2*>(scales_b + column);
      const float2 clean = make_float2(CleanScale(s.x), CleanScale(s.y));
      float v[2][2];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float sum = fmaf(sums.cross[4 * j + i], 1.0f / 2048.0f, sums.total[4 * j + i]) *
                          (i < 2 ? clean_0 : clean_8) * (i % 2 == 0 ? clean.x : clean.y);
        v[i / 2][i % 2] = sum;
        if (unit.is_whole()) {
          const bool one = IsUnsure(sum, i < 2 ? scale_0 : scale_8, i % 2 == 0 ? s.x : s.y);
          unsure |= static_cast<unsigned long long>(one) << (4 * j + i);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = row + half * 8;
        if (kN % 2 != 0 || !unit.is_whole()) {
          Give(epilogue, partial, unit, at, column, v[half]);
        } else if (at < kM && column < kN) {
          epilogue.template Store<2>(unit.tile.batch, at, column, v[half], inputs[j - j0][half]);
        }
      }
    }
    // Else the compiler has all columns' addresses in registers at once.
    asm volatile("" : "+r"(first));
  }
  if (!unit.is_whole()) return true;  // `combine` looks at the sums
  if (NamedBarrierOr(1, kConsumers, __popcll(unsure) > 4)) return false;
  while (const unsigned owners = __ballot_sync(0xffffffffu, unsure != 0)) {
    const int owner = __ffs(owners) - 1;
    const int one = __shfl_sync(0xffffffffu, __ffsll(static_cast<long long>(unsure)) - 1, owner);
    const int at_row = first_row + owner / 4 + one % 4 / 2 * 8;
    const int at_column = n0 + one / 4 * 8 + owner % 4 * 2 + one % 2;
    const float sum = SumAgain(a, b, at_row, at_column);
    if (lane == owner) {  // inside the matrix: beyond it all is zero
      StoreOne(epilogue, unit.tile.batch, at_row, at_column, sum);
      unsure &= unsure - 1;
    }
  }
  return true;
}

template <class Epilogue>
__device__ __forceinline__ void MultiplyTiles(Pipeline pipe, const Epilogue& epilogue,
                                              const float* __restrict__ a,
                                              const float* __restrict__ b,
                                              const float* __restrict__ a_scales,
                                              const float* __restrict__ b_scales,
                                              float* __restrict__ partial, float* slow_memory) {
  for (int number = blockIdx.x; number < kUnits; number += gridDim.x) {
    Sums sums;
    MultiplyTile(pipe, Unit(number).steps, sums);
    int again = number;  // so that nothing of the unit is held in registers during the sums
    asm volatile("" : "+r"(again));
    const Unit unit(again);
    const float* of_a = a + unit.tile.batch * kABatch;
    const float* of_b = b + unit.tile.batch * kBBatch;
    const float* scales_a = a_scales + unit.tile.batch_of_a() * kRowsA;
    const float* scales_b = b_scales + unit.tile.batch_of_b() * kRowsB;
    if (!GiveTile(epilogue, of_a, of_b, scales_a, scales_b, partial, unit, sums))
      SlowTile(epilogue, of_a, of_b, partial, unit, slow_memory);
  }
}

template <class Epilogue>
__device__ __forceinline__ void Product(const Epilogue& epilogue, const float* __restrict__ a,
                                        const float* __restrict__ b,
                                        const unsigned char* __restrict__ a_tiles,
                                        const unsigned char* __restrict__ b_tiles,
                                        const float* __restrict__ a_scales,
                                        const float* __restrict__ b_scales,
                                        float* __restrict__ partial) {
  __shared__ __align__(16) float slow_memory[kSlowBytes / 4];
  RunPipeline([&](Pipeline pipe) { CopyTiles(pipe, a_tiles, b_tiles); },
              [&](Pipeline pipe) {
                MultiplyTiles(pipe, epilogue, a, b, a_scales, b_scales, partial, slow_memory);
              });
}

// The parts of sums together: a block 512 sums of a tile, a thread two neighbours of a row.
template <class Epilogue>
__device__ __forceinline__ void Combine(const Epilogue& epilogue, const float* __restrict__ a,
                                        const float* __restrict__ b,
                                        const float* __restrict__ a_scales,
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
    const float again =
        SumAgain(a + tile.batch * kABatch, b + tile.batch * kBBatch, row, column_of_one);
    if (static_cast<int>(threadIdx.x % 32) == owner) {
      (one == 0 ? sums[0] : sums[1]) = again;
      unsure &= unsure - 1;
    }
  }
  if (row < kM && column < kN) StoreTwo(epilogue, tile.batch, row, column, sums);
}
