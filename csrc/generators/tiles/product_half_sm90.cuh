// product: out = epilogue(A B) in float16 or bfloat16 with float32 sums. Operands are copied as
// they are, in either layout, by tensor maps: dimensions (k, rows, batch) if rows hold k, else
// (rows, k, batch). `Epilogue` is generated, see tiles/epilogue.h.
//
// More constants in front (tiles/product_half.cc): kARowsHoldK, kBRowsHoldK.
constexpr int kBytesA = kTileM * kBlockK * 2;
constexpr int kBoxBytes = 64 * kBlockK * 2;  // 64 rows of a matrix whose rows do not hold k
constexpr int kStrips = kTileM / kGroups / 64;  // of 64 rows, that a warpgroup multiplies
constexpr int kSums = kTileN / 2;               // of a thread in a strip
static_assert(kBlockK == 64 && kStageBytes == kBytesA + kTileN * kBlockK * 2);

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

// One thread.
__device__ __forceinline__ void CopyTiles(Pipeline pipe, const CfTensorMap& a,
                                          const CfTensorMap& b) {
  for (int number = blockIdx.x; number < kUnits; number += gridDim.x) {
    const Unit unit(number);
    const Tile& tile = unit.tile;
#pragma unroll 1
    for (int step = 0; step < unit.steps; ++step) {
      const unsigned full = pipe.full + 8 * pipe.stage;
      const int k = (unit.first_step + step) * kBlockK;
      BarrierWait(pipe.empty + 8 * pipe.stage, pipe.parity ^ 1u);
      BarrierExpect(full, kStageBytes);
      CopyOperand<kTileM, kARowsHoldK != 0>(pipe.at(), a, tile.batch_of_a(), tile.m_tile * kTileM,
                                            k, full);
      CopyOperand<kTileN, kBRowsHoldK != 0>(pipe.at() + kBytesA, b, tile.batch_of_b(),
                                            tile.n_tile * kTileN, k, full);
      pipe.Next();
    }
  }
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

// Exchanges the pairs of four neighbouring lanes: pairs[r] of lane q becomes pairs[q] of lane r.
__device__ __forceinline__ void Transpose(float (&pairs)[4][2]) {
  const bool odd = threadIdx.x % 2 != 0, high = threadIdx.x / 2 % 2 != 0;
  const auto exchange = [](float(&x)[2], float(&y)[2], bool first, int distance) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float got = __shfl_xor_sync(0xffffffffu, first ? x[i] : y[i], distance);
      (first ? x[i] : y[i]) = got;
    }
  };
  exchange(pairs[0], pairs[1], odd, 1);
  exchange(pairs[2], pairs[3], odd, 1);
  exchange(pairs[0], pairs[2], high, 2);
  exchange(pairs[1], pairs[3], high, 2);
}

// What the epilogue reads for eight neighbours of a row, if they are inside the matrix.
template <class Epilogue>
__device__ __forceinline__ typename Epilogue::template Inputs<8> LoadInside(const Epilogue& epilogue,
                                                                            int batch, int row,
                                                                            int column) {
  typename Epilogue::template Inputs<8> inputs;
  if constexpr (kN % 8 == 0) {
    if (row < kM && column < kN) inputs = epilogue.template Load<8>(batch, row, column);
  }
  return inputs;
}

// Stores those of eight neighbours of a row that are inside the matrix.
template <class Epilogue>
__device__ __forceinline__ void StoreInside(
    const Epilogue& epilogue, int batch, int row, int column, const float (&sums)[8],
    const typename Epilogue::template Inputs<8>& inputs) {
  if (row >= kM) return;
  if constexpr (kN % 8 == 0) {
    if (column < kN) epilogue.template Store<8>(batch, row, column, sums, inputs);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float one[1] = {sums[i]};
      if (column + i < kN) {
        epilogue.template Store<1>(batch, row, column + i, one,
                                   epilogue.template Load<1>(batch, row, column + i));
      }
    }
  }
}

// A lane's eight columns of a strip: those of four neighbouring lanes are 32 columns in a row.
template <class Epilogue>
__device__ __forceinline__ void GiveStrip(const Epilogue& epilogue, float* __restrict__ partial,
                                          const Unit& unit, int row_of_tile,
                                          const float (&sums)[kSums]) {
  const int lane = threadIdx.x % 32;
  const int m0 = unit.tile.m_tile * kTileM, n0 = unit.tile.n_tile * kTileN;
  constexpr int kPlaces = kTileN / 16;  // 32 columns in two rows
  const auto row = [&](int place) { return row_of_tile + place % 2 * 8; };
  const auto column = [&](int place) { return (place / 2 * 4 + lane % 4) * 8; };
#pragma unroll
  for (int place = 0; place < kPlaces; ++place) {
    typename Epilogue::template Inputs<8> inputs;
    if (unit.is_whole())
      inputs = LoadInside(epilogue, unit.tile.batch, m0 + row(place), n0 + column(place));
    float pairs[4][2], eight[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      pairs[i / 2][i % 2] = sums[4 * (place / 2 * 4 + i / 2) + place % 2 * 2 + i % 2];
    Transpose(pairs);
#pragma unroll
    for (int i = 0; i < 8; ++i) eight[i] = pairs[i / 2][i % 2];
    if (unit.is_whole()) {
      StoreInside(epilogue, unit.tile.batch, m0 + row(place), n0 + column(place), eight,
                  inputs);
    } else {
      const long long at = static_cast<long long>(unit.part) * kTileM + row(place);
      float4* to = reinterpret_cast<float4*>(partial + at * kTileN + column(place));
      to[0] = make_float4(eight[0], eight[1], eight[2], eight[3]);
      to[1] = make_float4(eight[4], eight[5], eight[6], eight[7]);
    }
  }
}

// Where each warpgroup has tiles of its own, they multiply in turns, in the order of the copies.
// Else one would wait for a stage that is to be filled several times before, and a barrier tells
// its phases apart by parity alone.
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
  static __device__ __forceinline__ void Arrive(int of) { NamedBarrierArrive(kFirst + of, kConsumers); }
};

template <class Epilogue>
__device__ __forceinline__ void MultiplyTiles(Pipeline pipe, const Epilogue& epilogue,
                                              float* __restrict__ partial) {
  const Turns turns = {static_cast<int>(threadIdx.x / 128) - 1};
  turns.Begin();
  int turn = 0;
  for (int number = blockIdx.x; number < kUnits; number += gridDim.x, ++turn) {
    const Unit unit(number);
    if (kGroups == 1 && turn % 2 != turns.group) {
      pipe.Skip(unit.steps);
      continue;
    }
    Sums sums;
    turns.Wait();
    MultiplyTile(pipe, unit.steps, sums, [&] { turns.Pass(); });
    const int row = FirstRow() + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip)
      GiveStrip(epilogue, partial, unit, row + strip * 64, sums.of[strip]);
  }
}

template <class Epilogue>
__device__ __forceinline__ void Product(const Epilogue& epilogue, const CfTensorMap& a,
                                        const CfTensorMap& b, float* __restrict__ partial) {
  RunPipeline([&](Pipeline pipe) { CopyTiles(pipe, a, b); },
              [&](Pipeline pipe) { MultiplyTiles(pipe, epilogue, partial); });
}

// The parts of sums together: a block 2,048 sums of a tile, a thread eight neighbours of a row.
template <class Epilogue>
__device__ __forceinline__ void Combine(const Epilogue& epilogue,
                                        const float* __restrict__ partial) {
  constexpr int kSize = kTileM * kTileN, kBlocks = kSize / 2048;
  const int number = blockIdx.x / kBlocks;
  const int at = (blockIdx.x % kBlocks * 256 + threadIdx.x) * 8;
  const Tile tile(kWhole + number);
  const float* from = partial + static_cast<long long>(number) * kParts * kSize + at;
  float sums[8] = {};
#pragma unroll 2
  for (int part = 0; part < kParts; ++part) {
    const float4* x = reinterpret_cast<const float4*>(from + part * kSize);
    const float4 low = x[0], high = x[1];
    sums[0] += low.x, sums[1] += low.y, sums[2] += low.z, sums[3] += low.w;
    sums[4] += high.x, sums[5] += high.y, sums[6] += high.z, sums[7] += high.w;
  }
  const int row = tile.m_tile * kTileM + at / kTileN, column = tile.n_tile * kTileN + at % kTileN;
  StoreInside(epilogue, tile.batch, row, column, sums,
              LoadInside(epilogue, tile.batch, row, column));
}
