// product: out = epilogue(A B) in float32 on Hopper's tensor cores, from the tiles of halves that
// `split` has made. Sums over 64 elements are added up in float32, because the tensor cores' own
// accumulators truncate. What becomes of the sums: product_f32.cuh. The blocks: units.cuh and
// pipeline_sm90.cuh.
static_assert(kStageBytes == 2 * kOperandBytes);

// A warp has what the epilogue reads of matrices for the tile brought to the L2 cache.
template <class AllEpilogues>
__device__ __forceinline__ void FetchAhead(const AllEpilogues& all, const Unit& unit) {
  using Epilogue = typename AllEpilogues::One;
  if (Epilogue::kMatricesRead == 0 || !unit.is_whole()) return;
  const Epilogue epilogue = all.Of(unit.tile.batch);
  constexpr int kFetched = 32, kOfRow = kTile / kFetched;  // floats: 128 bytes
#pragma unroll 1
  for (int i = threadIdx.x % 32; i < kTile * kOfRow; i += 32) {
    const int row = unit.tile.m_tile * kTile + i / kOfRow;
    const int column = unit.tile.n_tile * kTile + i % kOfRow * kFetched;
    if (row < kM && column < kN)
      epilogue.VisitMatricesRead(unit.tile.batch, row, column,
                                 [](const void* at) { PrefetchLine(at); });
  }
}

// A warp; one of its threads copies.
template <class AllEpilogues>
__device__ __forceinline__ void CopyTiles(Pipeline pipe, const AllEpilogues& all,
                                          const unsigned char* __restrict__ a_tiles,
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
      if (threadIdx.x == 0) {
        const unsigned full = pipe.full + 8 * pipe.stage;
        BarrierWait(pipe.empty + 8 * pipe.stage, pipe.parity ^ 1u);
        BarrierExpect(full, kStageBytes);
        BulkCopy(pipe.at(), a, kOperandBytes, full);
        BulkCopy(pipe.at() + kOperandBytes, b, kOperandBytes, full);
      }
      a += kOperandBytes;
      b += kOperandBytes;
      pipe.Next();
      __syncwarp();
      // Once all stages are on their way.
      if (step == min(unit.steps, kStages) - 1) FetchAhead(all, unit);
    }
  }
}

// The thread's sums: see GiveTile.
__device__ __forceinline__ void MultiplyTile(Pipeline& pipe, int steps, float (&sums)[64]) {
  const int group = threadIdx.x / 128 - 1;
  const int lane = threadIdx.x % 32;
  float block[64], cross[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] = block[i] = cross[i] = 0.0f;
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
    for (int k = 0; k < 4; ++k) Mma<1>(cross, ah + 2 * k, bl + 2 * k);
#pragma unroll
    for (int k = 0; k < 4; ++k) Mma<1>(cross, al + 2 * k, bh + 2 * k);
    MmaCommit();
    MmaWait<1>(block);  // this step's h h' and all of the step before; the cross products run on
    if (step > 0) release(previous);
#pragma unroll
    for (int i = 0; i < 64; ++i) sums[i] += block[i];
    __syncwarp();
    previous = pipe.stage;
    pipe.Next();
  }
  MmaWait<0>(cross);
  release(previous);
#pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] = fmaf(cross[i], 1.0f / 2048.0f, sums[i]);
}

template <class AllEpilogues>
__device__ __forceinline__ void MultiplyTiles(Pipeline pipe, const AllEpilogues& all,
                                              const float* __restrict__ a, const MatricesB& b,
                                              const float* __restrict__ a_scales,
                                              const float* __restrict__ b_scales,
                                              float* __restrict__ partial, float* slow_memory) {
  for (int number = blockIdx.x; number < kUnits; number += gridDim.x) {
    float sums[64];
    MultiplyTile(pipe, Unit(number).steps, sums);
    int again = number;  // so that nothing of the unit is held in registers during the sums
    asm volatile("" : "+r"(again));
    const Unit unit(again);
    const float* of_a = a + unit.tile.batch * kABatch;
    const float* of_b = b.Of(unit.tile.batch);
    const auto& epilogue = all.Of(unit.tile.batch);
    const float* scales_a = a_scales + unit.tile.batch_of_a() * kRowsA;
    const float* scales_b = b_scales + unit.tile.batch_of_b() * kRowsB;
    if (!GiveTile(epilogue, of_a, of_b, scales_a, scales_b, partial, unit, sums))
      SlowTile(epilogue, of_a, of_b, partial, unit, slow_memory);
  }
}

template <class AllEpilogues>
__device__ __forceinline__ void Product(const AllEpilogues& all, const float* __restrict__ a,
                                        const MatricesB& b,
                                        const unsigned char* __restrict__ a_tiles,
                                        const unsigned char* __restrict__ b_tiles,
                                        const float* __restrict__ a_scales,
                                        const float* __restrict__ b_scales,
                                        float* __restrict__ partial) {
  __shared__ __align__(16) float slow_memory[kSlowBytes / 4];
  RunPipeline([&](Pipeline pipe) { CopyTiles(pipe, all, a_tiles, b_tiles); },
              [&](Pipeline pipe) {
                MultiplyTiles(pipe, all, a, b, a_scales, b_scales, partial, slow_memory);
              });
}
