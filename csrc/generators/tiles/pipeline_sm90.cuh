// Which block computes what, and the pipeline of copies to shared memory. One block a
// multiprocessor goes through units of work: a tile of the result, or a part of its sums. A thread
// copies, two warpgroups multiply: each half the rows of a tile. Needs device/barrier.cuh before
// it.
//
// Constants in front: kM, kN, kK, kBatch; kTileM, kTileN, kBlockK; kABatches, kBBatches: 1 if all
// of the batch have the same matrix; kWhole: as many tiles are one unit each, the others kParts of
// them along k, which `combine` adds up; kStages, kStageBytes.
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
    n_tile = within / height;
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

// What both sides of the pipeline know: barrier s of `full` is for the copies into stage s, of
// `empty` for its readers.
struct Pipeline {
  unsigned memory, full, empty;
  int stage = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void Next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1u;
    }
  }
  __device__ __forceinline__ void Skip(int steps) {
    const int turns = (stage + steps) / kStages;
    stage = (stage + steps) % kStages;
    parity ^= turns & 1;
  }
  __device__ __forceinline__ unsigned at() const { return memory + stage * kStageBytes; }
};

constexpr int kConsumers = 256;  // threads that multiply, from thread 128
constexpr int kPipelineThreads = 128 + kConsumers;

// Of all threads of a block. copy(pipeline): by one thread. multiply(pipeline): by kConsumers
// threads.
template <class Copy, class Multiply>
__device__ __forceinline__ void RunPipeline(Copy copy, Multiply multiply) {
  extern __shared__ __align__(1024) unsigned char dynamic_memory[];
  __shared__ __align__(8) unsigned long long barriers[2 * kStages];
  Pipeline pipe;
  pipe.memory = (SharedAddress(dynamic_memory) + 1023u) & ~1023u;
  pipe.full = SharedAddress(barriers);
  pipe.empty = pipe.full + 8 * kStages;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      BarrierInit(pipe.full + 8 * s, 1);
      BarrierInit(pipe.empty + 8 * s, 4 * kGroups);
    }
    BarrierInitDone();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    LowerRegisters<24>();
    if (threadIdx.x == 0) copy(pipe);
  } else {
    RaiseRegisters<240>();
    multiply(pipe);
  }
}
