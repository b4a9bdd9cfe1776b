// Neighbours of a row at the edges of the matrix, and the sums of parts of products in half types.
// `Epilogue` is generated, see tiles/epilogue.h.

// Where something can be loaded in place of what is outside of the matrix.
__device__ __forceinline__ int InsideRow(int row) {
  return kM % kTileM == 0 ? row : min(row, kM - 1);
}
template <int V>
__device__ __forceinline__ int InsideColumn(int column) {
  return kN % kTileN == 0 ? column : min(column, kN - V);
}

// As many neighbours of a row as are inside or outside of the matrix together.
constexpr int kNeighbours = kN % 8 == 0 ? 8 : kN % 2 == 0 ? 2 : 1;

template <class Epilogue>
using NeighbourInputs = typename Epilogue::template Inputs<kNeighbours>;

// What the epilogue reads for neighbours; outside of the matrix, what it reads for others.
template <class Epilogue>
__device__ __forceinline__ NeighbourInputs<Epilogue> LoadNeighbours(const Epilogue& epilogue,
                                                                    int batch, int row,
                                                                    int column) {
  return epilogue.template Load<kNeighbours>(batch, InsideRow(row),
                                             InsideColumn<kNeighbours>(column));
}

template <class Epilogue>
__device__ __forceinline__ void StoreNeighbours(const Epilogue& epilogue, int batch, int row,
                                                int column, const float (&sums)[kNeighbours],
                                                const NeighbourInputs<Epilogue>& inputs) {
  if ((kM % kTileM == 0 || row < kM) && (kN % kTileN == 0 || column < kN))
    epilogue.template Store<kNeighbours>(batch, row, column, sums, inputs);
}

// The parts of sums together: a block 256 * kNeighbours sums of a tile, a thread neighbours of a
// row.
template <class AllEpilogues>
__device__ __forceinline__ void Combine(const AllEpilogues& all,
                                        const float* __restrict__ partial) {
  constexpr int kSize = kTileM * kTileN, kBlocks = kSize / (256 * kNeighbours);
  const int number = blockIdx.x / kBlocks;
  const int at = static_cast<int>(blockIdx.x % kBlocks * 256 + threadIdx.x) * kNeighbours;
  const Tile tile(kWhole + number);
  const typename AllEpilogues::One epilogue = all.Of(tile.batch);
  const int row = tile.m_tile * kTileM + at / kTileN, column = tile.n_tile * kTileN + at % kTileN;
  const auto inputs = LoadNeighbours(epilogue, tile.batch, row, column);
  const float* from = partial + static_cast<long long>(number) * kParts * kSize + at;
  float sums[kNeighbours] = {};
#pragma unroll 2
  for (int part = 0; part < kParts; ++part) {
    const CfVec<float, kNeighbours> some = cf_load_vector<kNeighbours>(from + part * kSize);
#pragma unroll
    for (int j = 0; j < kNeighbours; ++j) sums[j] += some.v[j];
  }
  StoreNeighbours(epilogue, tile.batch, row, column, sums, inputs);
}
