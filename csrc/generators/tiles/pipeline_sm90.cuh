// The pipeline of copies to shared memory. One block a multiprocessor goes through units of work
// (units.cuh): a thread copies, two warpgroups multiply, each half the rows of a tile. Needs
// device/barrier.cuh and units.cuh before it.
//
// Constants in front: kStages, kStageBytes, kGroups.
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
constexpr int kFirstConsumer = 128;
constexpr int kPipelineThreads = kFirstConsumer + kConsumers;

__device__ __forceinline__ void ConsumerBarrier() { NamedBarrier(1, kConsumers); }
// True for all of them if `mine` is true for one.
__device__ __forceinline__ bool ConsumerBarrierOr(bool mine) {
  return NamedBarrierOr(1, kConsumers, mine);
}

// Has the stages filled for all units in turn, by one thread of the warp that calls it.
// copy(unit, k, to, full): begins the copies of kBlockK of k from k on, kStageBytes in all.
template <class Copy>
__device__ __forceinline__ void FillStages(Pipeline pipe, Copy copy) {
  if (threadIdx.x != 0) return;
  for (int number = blockIdx.x; number < kUnits; number += gridDim.x) {
    const Unit unit(number);
#pragma unroll 1
    for (int step = 0; step < unit.steps; ++step) {
      const unsigned full = pipe.full + 8 * pipe.stage;
      BarrierWait(pipe.empty + 8 * pipe.stage, pipe.parity ^ 1u);
      BarrierExpect(full, kStageBytes);
      copy(unit, (unit.first_step + step) * kBlockK, pipe.at(), full);
      pipe.Next();
    }
  }
}

// Of all threads of a block. copy(pipeline): by a warp. multiply(pipeline): by kConsumers
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
    if (threadIdx.x < 32) copy(pipe);
  } else {
    RaiseRegisters<240>();
    multiply(pipe);
  }
}
