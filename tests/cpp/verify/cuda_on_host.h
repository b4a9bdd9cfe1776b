// Runs the verifier's own kernels (csrc/verify/device/*.cu) on the host, one block after another,
// its threads in turns up to the next barrier. Tests indices and barriers without a GPU. Include
// this before the .cu file.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#define __global__ inline
#define __device__ inline
#define __forceinline__
#define __launch_bounds__(...)
#define __shared__ static
#define __grid_constant__

namespace cudaforge::on_host {

struct Index {
  unsigned x = 0;
};
inline Index thread_index;
inline Index block_index;
inline Index block_size;
inline Index grid_size;

// The threads of a block, each with its own stack.
struct Block {
  std::vector<ucontext_t> threads;
  std::vector<std::vector<char>> stacks;
  ucontext_t caller;
  std::function<void()> body;
};
inline Block block;

// Switches to the next thread, which continues where it stopped.
inline void NextThread() {
  const unsigned from = thread_index.x;
  thread_index.x = (from + 1) % block_size.x;
  swapcontext(&block.threads[from], &block.threads[thread_index.x]);
}

inline void RunThread() {
  for (;; NextThread()) {
    block.body();
    if (thread_index.x + 1 == block_size.x) setcontext(&block.caller);
  }
}

// Calls kernel(arguments...) for each thread of the grid. REQUIRES: all threads of a block reach
// the same number of barriers.
template <typename Kernel, typename... Arguments>
void Launch(Kernel kernel, unsigned grid, unsigned size, Arguments... arguments) {
  constexpr size_t kStack = 64 << 10;
  block_size = {size};
  grid_size = {grid};
  block.body = [&] { kernel(arguments...); };
  for (unsigned b = 0; b < grid; ++b) {
    block_index = {b};
    thread_index = {0};
    block.threads.resize(size);
    block.stacks.resize(size);
    for (unsigned t = 0; t < size; ++t) {
      block.stacks[t].resize(kStack);
      getcontext(&block.threads[t]);
      block.threads[t].uc_stack.ss_sp = block.stacks[t].data();
      block.threads[t].uc_stack.ss_size = kStack;
      makecontext(&block.threads[t], RunThread, 0);
    }
    swapcontext(&block.caller, &block.threads[0]);
  }
}

}  // namespace cudaforge::on_host

#define threadIdx ::cudaforge::on_host::thread_index
#define blockIdx ::cudaforge::on_host::block_index
#define blockDim ::cudaforge::on_host::block_size
#define gridDim ::cudaforge::on_host::grid_size

struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

inline void __syncthreads() { ::cudaforge::on_host::NextThread(); }
template <typename T>
T atomicAdd(T* to, T value) {
  return std::exchange(*to, *to + value);
}
template <typename T>
T atomicMin(T* to, T value) {
  return std::exchange(*to, std::min(*to, value));
}
template <typename T>
T atomicMax(T* to, T value) {
  return std::exchange(*to, std::max(*to, value));
}
