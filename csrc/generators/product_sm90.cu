// The second part of the kernels' text; product_split_sm90.cu is the first, and says how they work.

// ---------------------------------------------------------------------------------------------
// product: a block a tile of the result, or a part of its sum.
// ---------------------------------------------------------------------------------------------
__device__ __forceinline__ unsigned SharedAddress(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void BarrierInit(unsigned barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void BarrierArrive(unsigned barrier) {
  asm volatile("{\n.reg .b64 t;\nmbarrier.arrive.shared::cta.b64 t, [%0];\n}" ::"r"(barrier)
               : "memory");
}

__device__ __forceinline__ void BarrierExpect(unsigned barrier, unsigned bytes) {
  asm volatile(
      "{\n.reg .b64 t;\nmbarrier.arrive.expect_tx.shared::cta.b64 t, [%0], %1;\n}" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}

__device__ __forceinline__ void BarrierWait(unsigned barrier, unsigned parity) {
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

__device__ __forceinline__ void BulkCopy(unsigned to, const void* from, unsigned bytes,
                                         unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void LoadStage(unsigned stage, const unsigned char* a,
                                          const unsigned char* b, unsigned barrier) {
  BarrierExpect(barrier, kStageBytes);
  BulkCopy(stage, a, kOperandBytes, barrier);
  BulkCopy(stage + kOperandBytes, b, kOperandBytes, barrier);
}

// K contiguous, rows of 128 bytes, 128-byte swizzle, 1024 bytes from 8 rows to the next 8.
__device__ __forceinline__ unsigned long long Descriptor(unsigned address) {
  return static_cast<unsigned long long>((address & 0x3ffffu) >> 4) | (1ull << 16) | (64ull << 32) |
         (1ull << 62);
}

// d (64 x 128) = a (64 x 16) b (16 x 128) + (add ? d : 0)
template <int kAdd>
__device__ __forceinline__ void Mma(float (&d)[64], unsigned long long a, unsigned long long b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, p, 1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
        "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),
        "+f"(d[63])
      : "l"(a), "l"(b), "n"(kAdd));
}

__device__ __forceinline__ void MmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void MmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// The registers are named so that nothing that reads them moves in front of the wait.
template <int kLeft>
__device__ __forceinline__ void MmaWait(float (&d)[64]) {
  asm volatile("wgmma.wait_group.sync.aligned %64;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                 "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]),
                 "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),
                 "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
                 "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),
                 "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
                 "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),
                 "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
                 "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]),
                 "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]),
                 "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
               : "n"(kLeft)
               : "memory");
}

struct Added {
  const float* __restrict__ self;
  float alpha, beta;

  __device__ __forceinline__ float Finish(int row, int column, float sum) const {
    if constexpr (kAdds == 0) return alpha * sum;
    return fmaf(alpha, sum, beta * self[row * kSelfRow + column * kSelfColumn]);
  }
};

// Two neighbours of a row, the first in an even column.
__device__ __forceinline__ void StorePair(const Added& added, float* __restrict__ out, int row,
                                          int column, float first, float second) {
  if (row >= kM) return;
  float* to = out + static_cast<long long>(row) * kN + column;
  if constexpr (kN % 2 == 0) {
    if (column >= kN) return;
    *reinterpret_cast<float2*>(to) =
        make_float2(added.Finish(row, column, first), added.Finish(row, column + 1, second));
  } else {
    if (column < kN) to[0] = added.Finish(row, column, first);
    if (column + 1 < kN) to[1] = added.Finish(row, column + 1, second);
  }
}

// What the block of a tile does with two neighbours: a part of several is left for `combine`.
__device__ __forceinline__ void GivePair(const Added& added, float* __restrict__ out,
                                         float* __restrict__ partial, int row, int column,
                                         float first, float second) {
  if constexpr (kParts == 1) {
    StorePair(added, out, row, column, first, second);
  } else {
    float* to = partial + (static_cast<long long>(blockIdx.y) * kRowsA + row) * kRowsB + column;
    *reinterpret_cast<float2*>(to) = make_float2(first, second);
  }
}

// 16 elements along k of 128 rows, to `to` with k first.
constexpr int kSlowK = 16;
constexpr int kSlowPitch = kTile + 4;

template <int kRows, int kLead, int kStep>
__device__ __forceinline__ void LoadSlow(const float* __restrict__ x, float* to, int row0, int k0,
                                         int end) {
#pragma unroll
  for (int i = 0; i < kSlowK * kTile / 256; ++i) {
    const int e = i * 256 + threadIdx.x;
    const int row = kStep == 1 ? e / kSlowK : e % kTile, k = kStep == 1 ? e % kSlowK : e / kTile;
    const bool inside = row0 + row < kRows && k0 + k < end;
    to[k * kSlowPitch + row] =
        inside
            ? x[static_cast<long long>(row0 + row) * kLead + static_cast<long long>(k0 + k) * kStep]
            : 0.0f;
  }
}

// A tile in float32: 8 x 8 results a thread, at rows ty * 4 + {0..3, 64..67}, columns likewise.
__device__ __forceinline__ void SlowTile(const Added& added, const float* __restrict__ a,
                                         const float* __restrict__ b, float* __restrict__ partial,
                                         float* __restrict__ out, float* memory, int m0, int n0,
                                         int begin, int end) {
  float* as = memory;  // [kSlowK][kSlowPitch]
  float* bs = memory + kSlowK * kSlowPitch;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
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
      __syncthreads();  // nobody reads the former step any more
      LoadSlow<kM, kARow, kAStep>(a, as, m0, k0, end);
      LoadSlow<kN, kBRow, kBStep>(b, bs, n0, k0, end);
      __syncthreads();
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
      GivePair(added, out, partial, row, column, total[i][j], total[i][j + 1]);
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

// Whether the tile has a row or column that is not split; to all threads of the block.
__device__ __forceinline__ bool IsSlow(const float* __restrict__ scales, int m0, int n0) {
  const float mine =
      threadIdx.x < 128 ? scales[m0 + threadIdx.x] : scales[kRowsA + n0 + threadIdx.x - 128];
  return __syncthreads_or(mine < 0.0f) != 0;
}

// The tile of block `block`: 8 rows of tiles are gone through together, so that what they read
// stays in the L2 cache.
__device__ __forceinline__ void TileOf(int block, int& m_tile, int& n_tile) {
  const int group = block / (8 * kTilesN), within = block % (8 * kTilesN);
  const int height = min(8, kTilesM - group * 8);
  m_tile = group * 8 + within % height;
  n_tile = within / height;
}

// The tile from `steps` steps of 64 along k. False: too many of its sums are unsure, and what was
// given does not hold.
__device__ __forceinline__ bool FastTile(
    const Added& added, const float* __restrict__ a, const float* __restrict__ b,
    const unsigned char* __restrict__ from_a, const unsigned char* __restrict__ from_b,
    const float* __restrict__ scales, float* __restrict__ partial, float* __restrict__ out,
    unsigned char* dynamic_memory, unsigned long long* barriers, int m0, int n0, int steps) {
  const unsigned memory = (SharedAddress(dynamic_memory) + 1023u) & ~1023u;
  const unsigned full = SharedAddress(barriers);
  const unsigned empty = full + 8 * kStages;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      BarrierInit(full + 8 * s, 1);
      BarrierInit(empty + 8 * s, 8);  // one arrival a warp
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages && s < steps; ++s) {
      LoadStage(memory + s * kStageBytes, from_a + static_cast<long long>(s) * kOperandBytes,
                from_b + static_cast<long long>(s) * kOperandBytes, full + 8 * s);
    }
  }
  __syncwarp();

  const int group = threadIdx.x / 128;  // warpgroup: rows group * 64 .. + 63 of the tile
  const int lane = threadIdx.x % 32;
  float total[64], block[64], cross[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) total[i] = block[i] = cross[i] = 0.0f;

  int stage = 0, previous = kStages - 1;
  unsigned parity = 0;           // of full[stage]
  unsigned previous_parity = 0;  // of empty[previous]
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const unsigned at = memory + stage * kStageBytes;
    const unsigned long long ah = Descriptor(at + group * 8192);
    const unsigned long long al = Descriptor(at + kPartBytes + group * 8192);
    const unsigned long long bh = Descriptor(at + kOperandBytes);
    const unsigned long long bl = Descriptor(at + kOperandBytes + kPartBytes);
    BarrierWait(full + 8 * stage, parity);
    __syncwarp();
    MmaFence();
    Mma<0>(block, ah, bh);  // 16 halves of K are 32 bytes, 2 in the descriptor's units
    Mma<1>(block, ah + 2, bh + 2);
    Mma<1>(block, ah + 4, bh + 4);
    Mma<1>(block, ah + 6, bh + 6);
    MmaCommit();
#pragma unroll
    for (int k = 0; k < 4; ++k) Mma<1>(cross, ah + 2 * k, bl + 2 * k);
#pragma unroll
    for (int k = 0; k < 4; ++k) Mma<1>(cross, al + 2 * k, bh + 2 * k);
    MmaCommit();
    MmaWait<1>(block);  // this step's h h' and all of the step before; the cross products run on
    if (step > 0 && lane == 0) BarrierArrive(empty + 8 * previous);
#pragma unroll
    for (int i = 0; i < 64; ++i) total[i] += block[i];
    if (threadIdx.x == 0 && step > 0 && step + kStages - 1 < steps) {
      BarrierWait(empty + 8 * previous, previous_parity);
      const long long next = step + kStages - 1;
      LoadStage(memory + previous * kStageBytes, from_a + next * kOperandBytes,
                from_b + next * kOperandBytes, full + 8 * previous);
    }
    __syncwarp();
    previous = stage;
    previous_parity = parity;
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1u;
    }
  }
  MmaWait<0>(cross);

  const int warp = threadIdx.x / 32 % 4;
  const int row = m0 + group * 64 + warp * 16 + lane / 4;
  const float scale_0 = scales[row], scale_8 = scales[row + 8];
  const float clean_0 = CleanScale(scale_0), clean_8 = CleanScale(scale_8);
  unsigned long long unsure = 0;  // a bit for each of the thread's sums
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const int column = n0 + j * 8 + lane % 4 * 2;
    const float2 s = *reinterpret_cast<const float2*>(scales + kRowsA + column);
    const float2 clean = make_float2(CleanScale(s.x), CleanScale(s.y));
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[i] = fmaf(cross[4 * j + i], 1.0f / 2048.0f, total[4 * j + i]) *
             (i < 2 ? clean_0 : clean_8) * (i % 2 == 0 ? clean.x : clean.y);
      if constexpr (kParts == 1) {
        const bool one = IsUnsure(v[i], i < 2 ? scale_0 : scale_8, i % 2 == 0 ? s.x : s.y);
        unsure |= static_cast<unsigned long long>(one) << (4 * j + i);
      }
    }
    GivePair(added, out, partial, row, column, v[0], v[1]);
    GivePair(added, out, partial, row + 8, column, v[2], v[3]);
  }
  if constexpr (kParts > 1) return true;  // `combine` looks at the sums
  if (__syncthreads_or(__popcll(unsure) > 4)) return false;
  const int first_row = m0 + group * 64 + warp * 16;
  while (const unsigned owners = __ballot_sync(0xffffffffu, unsure != 0)) {
    const int owner = __ffs(owners) - 1;
    const int one = __shfl_sync(0xffffffffu, __ffsll(static_cast<long long>(unsure)) - 1, owner);
    const int at_row = first_row + owner / 4 + one % 4 / 2 * 8;
    const int at_column = n0 + one / 4 * 8 + owner % 4 * 2 + one % 2;
    const float sum =
        SumAgain(a, b, at_row, at_column);  // inside the matrix: beyond it all is zero
    if (lane == owner) {
      out[static_cast<long long>(at_row) * kN + at_column] = added.Finish(at_row, at_column, sum);
      unsure &= unsure - 1;
    }
  }
  return true;
}

extern "C" __global__ void __launch_bounds__(256, 1)
    product(const float* __restrict__ self, const float* __restrict__ a,
            const float* __restrict__ b, const unsigned char* __restrict__ a_tiles,
            const unsigned char* __restrict__ b_tiles, const float* __restrict__ scales,
            float* __restrict__ partial, float* __restrict__ out, double alpha, double beta) {
  extern __shared__ __align__(1024) unsigned char dynamic_memory[];
  __shared__ __align__(8) unsigned long long barriers[2 * kStages];
  const Added added = {self, static_cast<float>(alpha), static_cast<float>(beta)};
  int m_tile, n_tile;
  TileOf(blockIdx.x, m_tile, n_tile);
  const int m0 = m_tile * kTile, n0 = n_tile * kTile;
  const int first_step = static_cast<int>(static_cast<long long>(kSteps) * blockIdx.y / kParts);
  const int steps =
      static_cast<int>(static_cast<long long>(kSteps) * (blockIdx.y + 1) / kParts) - first_step;
  const unsigned char* from_a =
      a_tiles + (static_cast<long long>(m_tile) * kSteps + first_step) * kOperandBytes;
  const unsigned char* from_b =
      b_tiles + (static_cast<long long>(n_tile) * kSteps + first_step) * kOperandBytes;
  if (IsSlow(scales, m0, n0) || !FastTile(added, a, b, from_a, from_b, scales, partial, out,
                                          dynamic_memory, barriers, m0, n0, steps)) {
    SlowTile(added, a, b, partial, out, reinterpret_cast<float*>(dynamic_memory), m0, n0,
             first_step * kBlockK, min((first_step + steps) * kBlockK, kK));
  }
}

// ---------------------------------------------------------------------------------------------
// combine, where there are several parts: a thread two neighbours of a row.
// ---------------------------------------------------------------------------------------------
extern "C" __global__ void __launch_bounds__(256)
    combine(const float* __restrict__ self, const float* __restrict__ a,
            const float* __restrict__ b, const float* __restrict__ scales,
            const float* __restrict__ partial, float* __restrict__ out, double alpha, double beta) {
  const Added added = {self, static_cast<float>(alpha), static_cast<float>(beta)};
  const long long pair = static_cast<long long>(blockIdx.x) * 256 + threadIdx.x;
  const int row = static_cast<int>(pair / (kRowsB / 2)),
            column = static_cast<int>(pair % (kRowsB / 2)) * 2;
  float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const float2 x = *reinterpret_cast<const float2*>(
        partial + (static_cast<long long>(part) * kRowsA + row) * kRowsB + column);
    sum.x += x.x;
    sum.y += x.y;
  }
  // A warp has neighbours of one row: kRowsB is a multiple of 64.
  const float row_scale = scales[row];
  const float2 s = *reinterpret_cast<const float2*>(scales + kRowsA + column);
  const bool slow = row_scale < 0.0f;  // computed in float32 as it is; the columns' likewise
  unsigned unsure = 0;
  if (!slow && s.x >= 0.0f && IsUnsure(sum.x, row_scale, s.x)) unsure |= 1u;
  if (!slow && s.y >= 0.0f && IsUnsure(sum.y, row_scale, s.y)) unsure |= 2u;
  while (const unsigned owners = __ballot_sync(0xffffffffu, unsure != 0)) {
    const int owner = __ffs(owners) - 1;
    const int one = __shfl_sync(0xffffffffu, __ffs(static_cast<int>(unsure)) - 1, owner);
    const int at = __shfl_sync(0xffffffffu, column, owner) + one;
    const float again = SumAgain(a, b, row, at);
    if (static_cast<int>(threadIdx.x % 32) == owner) {
      (one == 0 ? sum.x : sum.y) = again;
      unsure &= unsure - 1;
    }
  }
  StorePair(added, out, row, column, sum.x, sum.y);
}
