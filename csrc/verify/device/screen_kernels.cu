// The screen on CUDA (verify/screen.h): one block per tile; screen_bands.cu has the rest.
#include "verify/device/screen_element.h"

namespace cudaforge::device {

enum : int { kScreenThreads = 64 };

struct ThreadSums {
  float squares;
  uint32_t count;
};

// Each thread has its own sums, which are added in a fixed order.
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

  // Handles elements of a dense tensor from number `begin`, in whole packs, at most `count`.
  // Returns how many. Both addresses are multiples of 16.
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

  // Handles elements of the tile from place `first`.
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

  // Thread b sums band b, starting at its own place to avoid bank conflicts.
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

}  // namespace cudaforge::device

// A grid of args.tiles blocks of kScreenThreads. Adds to *args.totals, which starts as Totals().
#define CF_KERNEL_OF_TYPE(name, element)                                                 \
  extern "C" __global__ void __launch_bounds__(cudaforge::device::kScreenThreads)        \
      name(cudaforge::device::ScreenArgs args) {                                         \
    __shared__ cudaforge::device::TileSpace space;                                       \
    cudaforge::device::ScreenTile<cudaforge::device::ElementKind::element>(args, space); \
  }
CF_KERNEL_OF_TYPE(screen_float32, kFloat32)
CF_KERNEL_OF_TYPE(screen_float16, kFloat16)
CF_KERNEL_OF_TYPE(screen_bfloat16, kBFloat16)
CF_KERNEL_OF_TYPE(screen_float64, kFloat64)
CF_KERNEL_OF_TYPE(screen_int64, kInt64)
CF_KERNEL_OF_TYPE(screen_int32, kInt32)
CF_KERNEL_OF_TYPE(screen_bool, kBool)
#undef CF_KERNEL_OF_TYPE
