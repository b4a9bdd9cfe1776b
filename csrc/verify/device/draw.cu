// Drawing a tensor: one pass over its storage, four elements a thread at a time.
#include "verify/device/draw.h"

namespace cudaforge::device {

template <typename Stored>
struct alignas(sizeof(Stored) < 4 ? 4 * sizeof(Stored) : 16) Four {
  Stored item0, item1, item2, item3;
};

// The next item after the previous three. In a loop that is not unrolled (unrolling makes the
// program four times as long), arrays of items do not stay in registers.
template <typename T>
__device__ __forceinline__ void Push(T item, T& a, T& b, T& c, T& d) {
  a = b;
  b = c;
  c = d;
  d = item;
}

// REQUIRES: `storage` is a multiple of the element size.
template <DrawType kType>
__device__ __forceinline__ void Draw(const DrawnTensor& tensor, const DrawKey& key, void* storage) {
  using Traits = DrawTraits<kType>;
  using Stored = typename Traits::Stored;
  auto* const out = static_cast<Stored*>(storage);
  const bool aligned = reinterpret_cast<uint64_t>(storage) % alignof(Four<Stored>) == 0;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x * 4;
  int64_t from = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
  for (; from < tensor.elements; from += stride) {
    Words4 words = DrawWords(key, static_cast<uint64_t>(from) / 4);
    Four<Stored> four = {};
    DrawPosition at = {};
    DrawRow row = {};
    int64_t run = 0, row_ends = 0;  // remaining run of the position; the next place of another row
#ifdef __CUDACC_RTC__
#pragma unroll 1
#endif
    for (int i = 0; i < 4; ++i) {
      if (run == 0) {
        at = DrawPositionOf(tensor, from + i);
        run = at.run;
        row_ends = 0;
        if (at.gap) row = GapRowOf(tensor, key);
      }
      if (!at.gap && (at.place >= row_ends || at.group_step != 0)) {
        row = DrawRowOf(tensor, key, at.group, at.place);
        const uint64_t number = Quotient(static_cast<uint64_t>(at.place), tensor.row_length);
        row_ends = static_cast<int64_t>((number + 1) * tensor.row_length.value);
      }
      Stored item = StoredOf<kType>(
          ElementBits<kType>(tensor, row, at.group, at.gap ? 0 : at.place, words.w0));
      if (at.gap && tensor.gap_is_ordinary == 0) item = static_cast<Stored>(~uint64_t{0});
      for (int s = 0; s < tensor.spots; ++s) {
        if (tensor.spot[s].offset != from + i) continue;
        item = StoredOf<kType>(static_cast<typename Traits::Bits>(tensor.spot[s].bits));
      }
      Push(item, four.item0, four.item1, four.item2, four.item3);
      Push(0u, words.w0, words.w1, words.w2, words.w3);
      --run;
      at.group += at.group_step;
      at.place += at.place_step;
    }
    if (aligned && from + 4 <= tensor.elements) {
      *reinterpret_cast<Four<Stored>*>(out + from) = four;
      continue;
    }
    const int64_t left = tensor.elements - from;
    out[from] = four.item0;
    if (left > 1) out[from + 1] = four.item1;
    if (left > 2) out[from + 2] = four.item2;
    if (left > 3) out[from + 3] = four.item3;
  }
}

}  // namespace cudaforge::device

#define CF_KERNEL_OF_TYPE(NAME, TYPE)                                                 \
  extern "C" __global__ void __launch_bounds__(256, 3)                                \
      NAME(const __grid_constant__ cudaforge::device::DrawnTensor tensor,             \
           const __grid_constant__ cudaforge::device::DrawKey key, void* storage) {   \
    cudaforge::device::Draw<cudaforge::device::DrawType::TYPE>(tensor, key, storage); \
  }
CF_KERNEL_OF_TYPE(draw_float32, kFloat32)
CF_KERNEL_OF_TYPE(draw_float16, kFloat16)
CF_KERNEL_OF_TYPE(draw_bfloat16, kBFloat16)
CF_KERNEL_OF_TYPE(draw_float64, kFloat64)
CF_KERNEL_OF_TYPE(draw_int64, kInt64)
CF_KERNEL_OF_TYPE(draw_int32, kInt32)
CF_KERNEL_OF_TYPE(draw_bool, kBool)
#undef CF_KERNEL_OF_TYPE
