// Which block computes what: blocks go through units of work, each a tile of the result or a part
// of its sums.
//
// Constants in front: kM, kN, kK, kBatch; kTileM, kTileN, kBlockK; kABatches, kBBatches: 1 if all
// of the batch have the same matrix; kWhole: as many tiles are one unit each, the others kParts of
// them along k, which `combine` adds up.
constexpr int kTilesM = (kM + kTileM - 1) / kTileM;
constexpr int kTilesN = (kN + kTileN - 1) / kTileN;
constexpr int kSteps = (kK + kBlockK - 1) / kBlockK;
constexpr int kGroupM = 8;  // rows of tiles that are gone through together, for the L2 cache
constexpr int kTiles = kBatch * kTilesM * kTilesN;
constexpr int kUnits = kWhole + (kTiles - kWhole) * kParts;
enum : bool { kHasWhole = kWhole > 0, kHasParts = kWhole < kTiles };

// A tile of the result.
struct Tile {
  int batch, m_tile, n_tile;

  __device__ __forceinline__ explicit Tile(int number) {
    const int tile = number % (kTilesM * kTilesN);
    batch = number / (kTilesM * kTilesN);
    const int group = tile / (kGroupM * kTilesN), within = tile % (kGroupM * kTilesN);
    const int height = min(kGroupM, kTilesM - group * kGroupM);
    m_tile = group * kGroupM + within % height;
    n_tile = kTilesN == 1 ? 0 : within / height;
  }
  __device__ __forceinline__ int batch_of_a() const { return kABatches == 1 ? 0 : batch; }
  __device__ __forceinline__ int batch_of_b() const { return kBBatches == 1 ? 0 : batch; }
};

struct Unit {
  Tile tile;
  int part;  // -1: all of the sums. Else the place of its sums in `partial`
  int first_step, steps;

  __device__ __forceinline__ explicit Unit(int number)
      : tile(number < kWhole ? number : kWhole + (number - kWhole) / kParts) {
    part = number < kWhole ? -1 : number - kWhole;
    const int of = number < kWhole ? 0 : part % kParts, parts = number < kWhole ? 1 : kParts;
    first_step = static_cast<int>(static_cast<long long>(kSteps) * of / parts);
    steps = static_cast<int>(static_cast<long long>(kSteps) * (of + 1) / parts) - first_step;
  }
  __device__ __forceinline__ bool is_whole() const { return kHasWhole && (!kHasParts || part < 0); }
};
