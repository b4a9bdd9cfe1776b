// The verifier's own kernels on memory: filling and checking (verify/device/fill.h).
#include "verify/device/fill.h"

namespace cudaforge::device {

// The part of a buffer whose addresses are multiples of 16, in units of 16 bytes, and what lies
// before and behind it.
struct Span16 {
  uint64_t head;    // bytes before
  uint64_t blocks;  // of 16 bytes
  uint64_t tail;    // bytes behind

  __device__ Span16(const void* data, uint64_t bytes) {
    head = (16 - (reinterpret_cast<uint64_t>(data) & 15)) & 15;
    if (head > bytes) head = bytes;
    blocks = (bytes - head) / 16;
    tail = bytes - head - blocks * 16;
  }
  // The position of edge byte number i of head + tail.
  __device__ uint64_t Edge(uint64_t i) const { return i < head ? i : i + blocks * 16; }
};

// One thread's place among all of the launch.
__device__ __forceinline__ uint64_t ThisThread() {
  return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ uint64_t AllThreads() {
  return static_cast<uint64_t>(gridDim.x) * blockDim.x;
}

struct FillBody {
  unsigned char* data;
  uint64_t bytes;
  uint64_t seed;

  template <FillKind kKind>
  __device__ void operator()(Constant<FillKind, kKind>) const {
    const Span16 span(data, bytes);
    auto* const blocks = reinterpret_cast<ulonglong2*>(data + span.head);
    for (uint64_t i = ThisThread(); i < span.blocks; i += AllThreads()) {
      const uint64_t position = span.head + i * 16;
      blocks[i] = {FillAt<kKind>(seed, position), FillAt<kKind>(seed, position + 8)};
    }
    if (ThisThread() < span.head + span.tail) {
      const uint64_t position = span.Edge(ThisThread());
      data[position] = FillByte<kKind>(seed, position);
    }
  }
};

}  // namespace cudaforge::device

// data[position] = the pattern's byte, for `bytes` bytes. Any grid.
extern "C" __global__ void __launch_bounds__(256)
    fill_bytes(unsigned char* data, uint64_t bytes, int kind, uint64_t seed) {
  using namespace cudaforge::device;
  WithFillKind(static_cast<FillKind>(kind), FillBody{data, bytes, seed});
}
