// The screen on CUDA (verify/screen.h), after its tiles (screen_kernels.cu): one block per band.
#include "verify/device/fill.h"
#include "verify/device/screen_element.h"

namespace cudaforge::device {

enum : int { kMergeThreads = 256 };

struct PickBody {
  const ScreenArgs& args;
  uint64_t offset;
  Pick& pick;

  template <ElementKind kKind>
  __device__ void operator()(Constant<ElementKind, kKind>) const {
    using Bits = typename Element<kKind>::Bits;
    pick.aten = ValueOf<kKind>(static_cast<const Bits*>(args.aten)[offset]);
    pick.candidate = ValueOf<kKind>(static_cast<const Bits*>(args.candidate)[offset]);
  }
};

// Returns the largest of the threads' values to all of them. `space`: one entry for each.
template <typename T>
__device__ T LargestOfBlock(T value, T* space) {
  __syncthreads();
  space[threadIdx.x] = value;
  __syncthreads();
  for (int step = kMergeThreads / 2; step > 0; step /= 2) {
    const int t = static_cast<int>(threadIdx.x);
    if (t < step && space[t + step] > space[t]) space[t] = space[t + step];
    __syncthreads();
  }
  return space[0];
}

template <typename T>
__device__ T SumOfBlock(T value, T* space) {
  __syncthreads();
  space[threadIdx.x] = value;
  __syncthreads();
  for (int step = kMergeThreads / 2; step > 0; step /= 2) {
    const int t = static_cast<int>(threadIdx.x);
    if (t < step) space[t] += space[t + step];
    __syncthreads();
  }
  return space[0];
}

}  // namespace cudaforge::device

// A grid of kBands blocks of kMergeThreads: computes args.bands from the tiles' results.
extern "C" __global__ void __launch_bounds__(cudaforge::device::kMergeThreads)
    screen_merge(cudaforge::device::ScreenArgs args) {
  using namespace cudaforge::device;
  __shared__ unsigned long long words[kMergeThreads];
  __shared__ double squares[kMergeThreads];
  const uint64_t row = blockIdx.x * args.tiles;
  unsigned long long count = 0;
  double sum = 0;
  for (uint64_t t = threadIdx.x; t < args.tiles; t += kMergeThreads) {
    count += args.counts[row + t];
    sum += static_cast<double>(args.squares[row + t]);
  }
  count = SumOfBlock(count, words);
  sum = SumOfBlock(sum, squares);
  BandSums& band = args.bands[blockIdx.x];
  if (threadIdx.x == 0) {
    band.count = count;
    band.squares = blockIdx.x == kSpecialBand ? 0 : sum;
  }
  // Tiles by their largest errors; for equal errors, the earlier tile first.
  unsigned long long last = ~0ull;
  for (int p = 0; p < kPicksPerBand; ++p) {
    unsigned long long best = 0;
    for (uint64_t t = threadIdx.x; t < args.tiles && last != 0; t += kMergeThreads) {
      const uint64_t key = args.keys[row + t];
      if (key == 0) continue;
      const unsigned long long rank = KeyOf(ErrorOf(key), static_cast<uint32_t>(t));
      if (rank < last && rank > best) best = rank;
    }
    if (last != 0) last = LargestOfBlock(best, words);
    if (threadIdx.x != 0) continue;
    Pick pick;
    if (last != 0) {
      pick.tile = PlaceOf(last);
      pick.error = ErrorOf(last);
      pick.number = pick.tile * args.tile_size + PlaceOf(args.keys[row + pick.tile]);
      WithElementKind(args.kind, PickBody{args, args.layout.OffsetOf(pick.number), pick});
    }
    band.picks[p] = pick;
  }
}

// Checks the bytes between elements, of `slots` places of `size` bytes each. `damage` as for
// check_fill.
extern "C" __global__ void __launch_bounds__(256)
    check_gaps(const unsigned char* data, uint64_t slots, int size,
               cudaforge::device::Layout layout, cudaforge::device::FillRule rule, uint64_t seed,
               unsigned long long* damage) {
  using namespace cudaforge::device;
  FillDifference found;
  const uint64_t threads = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  uint64_t slot = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; slot < slots; slot += threads) {
    if (!layout.Covers(slot)) found.CompareSlot(data, slot * size, size, rule, seed);
  }
  if (found.changed == 0) return;
  atomicAdd(&damage[0], static_cast<unsigned long long>(found.changed));
  atomicMin(&damage[1], static_cast<unsigned long long>(found.first));
}
