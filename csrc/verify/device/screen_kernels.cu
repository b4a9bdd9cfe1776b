// The screen on CUDA (verify/screen.h): one block for each tile, then one for each band.
#include "verify/device/fill.h"
#include "verify/device/screen_element.h"

namespace cudaforge::device {

enum : int { kScreenThreads = 64, kMergeThreads = 256 };

struct ThreadSums {
  float squares;
  uint32_t count;
};

// Each thread has sums of its own: they are added in the same order in every run.
struct TileSpace {
  ThreadSums sums[kBands][kScreenThreads];
  unsigned long long keys[kBands];
};

// 16 bytes of elements.
template <typename Bits>
struct Pack {
  Bits elements[16 / sizeof(Bits)];
};

template <ElementKind kKind>
struct TileScreen {
  using Bits = typename Element<kKind>::Bits;

  TileSpace& space;
  const bool bitwise;
  uint32_t unequal = 0;
  uint32_t first_unequal = ~0u;  // place in the tile
  uint32_t mask_unequal = 0;
  uint32_t first_mask_unequal = ~0u;
  uint32_t specials = 0;

  __device__ TileScreen(TileSpace& tile_space, bool is_bitwise)
      : space(tile_space), bitwise(is_bitwise) {}

  __device__ void Add(Bits aten, Bits candidate, uint32_t place) {
    const Seen seen = Look<kKind>(aten, candidate, bitwise);
    ThreadSums sums = space.sums[seen.band][threadIdx.x];
    sums.squares += seen.error * seen.error;
    ++sums.count;
    space.sums[seen.band][threadIdx.x] = sums;
    if (seen.special) ++specials;
    if (seen.error > 0) {
      const unsigned long long key = KeyOf(seen.error, place);
      if (key > space.keys[seen.band]) atomicMax(&space.keys[seen.band], key);
    }
    if (!seen.unequal) return;
    ++unequal;
    if (place < first_unequal) first_unequal = place;
    if (!seen.mask_unequal) return;
    ++mask_unequal;
    if (place < first_mask_unequal) first_mask_unequal = place;
  }

  // The elements of a dense tensor from number `begin` on, in whole packs, at most `count`. Returns
  // how many. Both addresses are multiples of 16.
  __device__ uint32_t AddPacks(const void* aten, const void* candidate, uint64_t begin,
                               uint32_t count) {
    constexpr uint32_t kWidth = 16 / sizeof(Bits);
    const auto* const a = reinterpret_cast<const uint4*>(static_cast<const Bits*>(aten) + begin);
    const auto* const c =
        reinterpret_cast<const uint4*>(static_cast<const Bits*>(candidate) + begin);
    const uint32_t packs = count / kWidth;
    uint4 next_a = {0, 0, 0, 0};
    uint4 next_c = {0, 0, 0, 0};
    if (threadIdx.x < packs) {
      next_a = a[threadIdx.x];
      next_c = c[threadIdx.x];
    }
    for (uint32_t i = threadIdx.x; i < packs; i += kScreenThreads) {
      const auto pack_a = BitCast<Pack<Bits>>(next_a);
      const auto pack_c = BitCast<Pack<Bits>>(next_c);
      if (i + kScreenThreads < packs) {
        next_a = a[i + kScreenThreads];
        next_c = c[i + kScreenThreads];
      }
#ifdef __CUDACC_RTC__
#pragma unroll
#endif
      for (uint32_t k = 0; k < kWidth; ++k) {
        Add(pack_a.elements[k], pack_c.elements[k], i * kWidth + k);
      }
    }
    return packs * kWidth;
  }

  // Elements of the tile from place `first` on.
  __device__ void AddEach(const ScreenArgs& args, uint64_t begin, uint32_t first, uint32_t count) {
    for (uint32_t i = first + threadIdx.x; i < count; i += kScreenThreads) {
      const uint64_t offset = args.layout.OffsetOf(begin + i);
      Add(static_cast<const Bits*>(args.aten)[offset],
          static_cast<const Bits*>(args.candidate)[offset], i);
    }
  }

  __device__ void AddTo(Totals& totals, uint64_t begin) const {
    if (specials != 0) atomicAdd(&totals.specials, static_cast<unsigned long long>(specials));
    if (unequal == 0) return;
    atomicAdd(&totals.unequal, static_cast<unsigned long long>(unequal));
    atomicMin(&totals.first_unequal, static_cast<unsigned long long>(begin + first_unequal));
    if (mask_unequal == 0) return;
    atomicAdd(&totals.mask_unequal, static_cast<unsigned long long>(mask_unequal));
    atomicMin(&totals.first_mask_unequal,
              static_cast<unsigned long long>(begin + first_mask_unequal));
  }
};

template <ElementKind kKind>
__device__ void ScreenTile(const ScreenArgs& args, TileSpace& space) {
  for (int b = 0; b < kBands; ++b) space.sums[b][threadIdx.x] = ThreadSums{0.0f, 0u};
  space.keys[threadIdx.x] = 0;
  __syncthreads();

  const uint64_t begin = blockIdx.x * args.tile_size;
  const uint64_t left = args.n - begin;
  const auto count = static_cast<uint32_t>(left < args.tile_size ? left : args.tile_size);
  const uint64_t places =
      reinterpret_cast<uint64_t>(args.aten) | reinterpret_cast<uint64_t>(args.candidate);
  TileScreen<kKind> screen(space, args.bitwise != 0);
  uint32_t done = 0;
  if (args.layout.IsDense() && (places & 15) == 0) {
    done = screen.AddPacks(args.aten, args.candidate, begin, count);
  }
  screen.AddEach(args, begin, done, count);
  screen.AddTo(*args.totals, begin);
  __syncthreads();

  // Thread b sums up band b, beginning at a place of its own: no two read the same bank.
  const uint32_t band = threadIdx.x;
  float squares = 0;
  uint32_t counted = 0;
  for (int i = 0; i < kScreenThreads; ++i) {
    const ThreadSums sums = space.sums[band][(i + band) % kScreenThreads];
    squares += sums.squares;
    counted += sums.count;
  }
  const uint64_t at = band * args.tiles + blockIdx.x;
  args.squares[at] = squares;
  args.counts[at] = counted;
  args.keys[at] = space.keys[band];
}

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

// The largest of the threads' values, for all of them. `space`: one entry for each.
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

// A grid of args.tiles blocks of kScreenThreads. Adds to *args.totals, which begins as Totals().
#define SCREEN_KERNEL(name, element)                                                     \
  extern "C" __global__ void __launch_bounds__(cudaforge::device::kScreenThreads)        \
      name(cudaforge::device::ScreenArgs args) {                                         \
    __shared__ cudaforge::device::TileSpace space;                                       \
    cudaforge::device::ScreenTile<cudaforge::device::ElementKind::element>(args, space); \
  }
SCREEN_KERNEL(screen_float32, kFloat32)
SCREEN_KERNEL(screen_float16, kFloat16)
SCREEN_KERNEL(screen_bfloat16, kBFloat16)
SCREEN_KERNEL(screen_float64, kFloat64)
SCREEN_KERNEL(screen_int64, kInt64)
SCREEN_KERNEL(screen_int32, kInt32)
SCREEN_KERNEL(screen_bool, kBool)

// A grid of kBands blocks of kMergeThreads: args.bands from what the tiles left.
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
  // Tiles by their largest errors: of errors as large, the tile further to the front.
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

// Bytes between elements, of `slots` places of `size` bytes each, that are not as filled. `damage`
// as for check_fill.
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
