// The verifier's kernels on memory: filling, checking and spoiling (verify/device/fill.h). `data`
// may have any alignment; grids have blocks of 256 threads, in any number.
#include "verify/device/fill.h"

namespace cudaforge::device {

// A buffer's part at multiples of 16, in blocks of 16 bytes, and its two edges.
struct Span16 {
  uint64_t head;    // bytes before
  uint64_t blocks;  // of 16 bytes
  uint64_t tail;    // bytes after

  __device__ Span16(const void* data, uint64_t bytes) {
    head = (16 - (reinterpret_cast<uint64_t>(data) & 15)) & 15;
    if (head > bytes) head = bytes;
    blocks = (bytes - head) / 16;
    tail = bytes - head - blocks * 16;
  }
  // The position of byte number i of head and tail.
  __device__ uint64_t Edge(uint64_t i) const { return i < head ? i : i + blocks * 16; }
};

// The index of this thread in the launch.
__device__ __forceinline__ uint64_t ThisThread() {
  return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ uint64_t AllThreads() {
  return static_cast<uint64_t>(gridDim.x) * blockDim.x;
}

}  // namespace cudaforge::device

// data[position] = the rule's byte.
extern "C" __global__ void __launch_bounds__(256)
    fill_bytes(unsigned char* data, uint64_t bytes, cudaforge::device::FillRule rule,
               uint64_t seed) {
  using namespace cudaforge::device;
  const Span16 span(data, bytes);
  auto* const blocks = reinterpret_cast<ulonglong2*>(data + span.head);
  for (uint64_t i = ThisThread(); i < span.blocks; i += AllThreads()) {
    const uint64_t position = span.head + i * 16;
    ulonglong2 block;
    block.x = FillAt(rule, seed, position);
    block.y = FillAt(rule, seed, position + 8);
    blocks[i] = block;
  }
  if (ThisThread() < span.head + span.tail) {
    const uint64_t position = span.Edge(ThisThread());
    data[position] = FillByte(rule, seed, position);
  }
}

// damage: {bytes changed, position of the first}, which begin as 0 and ~0.
extern "C" __global__ void __launch_bounds__(256)
    check_fill(const unsigned char* data, uint64_t bytes, cudaforge::device::FillRule rule,
               uint64_t seed, unsigned long long* damage) {
  using namespace cudaforge::device;
  const Span16 span(data, bytes);
  const auto* const blocks = reinterpret_cast<const ulonglong2*>(data + span.head);
  FillDifference found;
  for (uint64_t i = ThisThread(); i < span.blocks; i += AllThreads()) {
    const uint64_t position = span.head + i * 16;
    const ulonglong2 block = blocks[i];
    found.Compare(block.x, FillAt(rule, seed, position), position);
    found.Compare(block.y, FillAt(rule, seed, position + 8), position + 8);
  }
  if (ThisThread() < span.head + span.tail) {
    const uint64_t position = span.Edge(ThisThread());
    found.Compare(data[position], FillByte(rule, seed, position), position);
  }
  if (found.changed == 0) return;
  atomicAdd(&damage[0], static_cast<unsigned long long>(found.changed));
  atomicMin(&damage[1], static_cast<unsigned long long>(found.first));
}

extern "C" __global__ void __launch_bounds__(256)
    spoil_bytes(unsigned char* data, uint64_t bytes, uint64_t seed) {
  using namespace cudaforge::device;
  for (uint64_t g = ThisThread(); g < SpoilGroups(bytes); g += AllThreads()) {
    SpoilGroup(data, bytes, seed, g);
  }
}
