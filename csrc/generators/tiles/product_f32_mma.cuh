// product: out = epilogue(A B) in float32 on tensor cores by mma.sync, from the tiles of halves
// that `split` has made. Sums over 32 elements are added up in float32, because the tensor cores'
// own accumulators truncate. What becomes of the sums: product_f32.cuh. The units: units.cuh.
//
// A stage is half a tile of A and of B: 32 of k. It has h of A, l of A, h of B, l of B.
constexpr int kPartOfStage = kTile * 64;
static_assert(kStageBytes == 4 * kPartOfStage && kStrips == 4);

struct TileSource {
  const unsigned char* __restrict__ a_tiles;
  const unsigned char* __restrict__ b_tiles;
  const unsigned char* a;  // tiles
  const unsigned char* b;
  int number, left;  // the unit, and halves of tiles that it has left

  __device__ __forceinline__ void Begin(int unit_number) {
    number = unit_number;
    if (number >= kUnits) return;
    const Unit unit(number);
    const Tile& tile = unit.tile;
    const long long of_a = static_cast<long long>(tile.batch_of_a()) * kTilesM + tile.m_tile;
    const long long of_b = static_cast<long long>(tile.batch_of_b()) * kTilesN + tile.n_tile;
    a = a_tiles + (of_a * kSteps + unit.first_step) * kOperandBytes;
    b = b_tiles + (of_b * kSteps + unit.first_step) * kOperandBytes;
    left = 2 * unit.steps;
  }

  __device__ __forceinline__ void Copy(unsigned to) {
    if (number >= kUnits) return;
    const unsigned row = threadIdx.x / 4, piece = threadIdx.x % 4;
    constexpr int kRows = kConsumers / 4;  // at once
    // As `split` has stored it. The second half has piece + 4.
    const unsigned from = (row * 128 + (piece ^ row % 8) * 16) ^ (left % 2 * 64);
    to += RowsOf32(row, piece);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
      for (int rows = 0; rows < kTile; rows += kRows) {
        const unsigned at = from + part * kPartBytes + rows * 128;
        const unsigned place = to + part * kPartOfStage + rows * 64;
        AsyncCopy(place, a + at);
        AsyncCopy(place + 2 * kPartOfStage, b + at);
      }
    }
    --left;
    if (left % 2 == 0) {
      a += kOperandBytes;
      b += kOperandBytes;
    }
    if (left == 0) Begin(number + gridDim.x);
  }
};

// The thread's sums: see GiveTile.
__device__ __forceinline__ void MultiplyTile(Ring<TileSource>& ring, int steps, float (&sums)[64]) {
  const unsigned of_a = LaneOfRowsA(FirstRow());
  const unsigned of_b = 2 * kPartOfStage + LaneOfRowsB(FirstColumn());
  float total[kStrips][kColumnBlocks][4] = {}, cross[kStrips][kColumnBlocks][4] = {};
#pragma unroll 1
  for (int step = 0; step < 2 * steps; ++step) {
    const unsigned at = ring.Next();
    unsigned bh[2][kColumnBlocks / 2][4], bl[2][kColumnBlocks / 2][4];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int j = 0; j < kColumnBlocks / 2; ++j) {
        const unsigned from = ((at + of_b) ^ (k * 32)) + j * 16 * 64;
        LoadMatrices(from, bh[k][j]);
        LoadMatrices(from + kPartOfStage, bl[k][j]);
      }
    }
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      float block[kColumnBlocks][4] = {};
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const unsigned from = ((at + of_a) ^ (k * 32)) + strip * 16 * 64;
        unsigned ah[4], al[4];
        LoadMatrices(from, ah);
        LoadMatrices(from + kPartOfStage, al);
        const auto multiply = [&](float(&d)[kColumnBlocks][4], const unsigned(&a)[4],
                                  const unsigned(&b)[kColumnBlocks / 2][4]) {
#pragma unroll
          for (int j = 0; j < kColumnBlocks; ++j)
            MultiplyFragments<false>(d[j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        };
        multiply(block, ah, bh[k]);
        multiply(cross[strip], ah, bl[k]);
        multiply(cross[strip], al, bh[k]);
      }
#pragma unroll
      for (int i = 0; i < 4 * kColumnBlocks; ++i) total[strip][i / 4][i % 4] += block[i / 4][i % 4];
    }
  }
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    sums[i] = fmaf(cross[i / 4 / kColumnBlocks][i / 4 % kColumnBlocks][i % 4], 1.0f / 2048.0f,
                   total[i / 4 / kColumnBlocks][i / 4 % kColumnBlocks][i % 4]);
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
  extern __shared__ __align__(128) uint4 dynamic_shared[];
  static_assert(kSlowBytes <= kStages * kStageBytes);
  Ring<TileSource> ring(dynamic_shared, {a_tiles, b_tiles});
  ring.Begin(blockIdx.x);
#pragma unroll 1
  for (int number = blockIdx.x; number < kUnits; number += gridDim.x) {
    float sums[64];
    MultiplyTile(ring, Unit(number).steps, sums);
    int again = number;  // so that nothing of the unit is held in registers during the sums
    asm volatile("" : "+r"(again));
    const Unit unit(again);
    const float* of_a = a + unit.tile.batch * kABatch;
    const float* of_b = b.Of(unit.tile.batch);
    const auto& epilogue = all.Of(unit.tile.batch);
    const float* scales_a = a_scales + unit.tile.batch_of_a() * kRowsA;
    const float* scales_b = b_scales + unit.tile.batch_of_b() * kRowsB;
    if (GiveTile(epilogue, of_a, of_b, scales_a, scales_b, partial, unit, sums)) continue;
    // The ring's memory serves the tile in float32. What was copied for the next unit is lost.
    ring.Drain();
    SlowTile(epilogue, of_a, of_b, partial, unit, reinterpret_cast<float*>(dynamic_shared));
    __syncthreads();
    ring.Begin(number + gridDim.x);
  }
}
