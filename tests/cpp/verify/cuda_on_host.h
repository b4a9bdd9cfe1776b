// Runs the verifier's own kernels (csrc/verify/device/*.cu) on the host, one block after another,
// each thread of a block a thread: what their indices, barriers and atomics do can be tested without
// a GPU. Include this before the .cu file.
#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>

#define __global__ inline
#define __device__ inline
#define __forceinline__
#define __launch_bounds__(...)
#define __shared__ static

namespace cudaforge::on_host {

struct Index {
  unsigned x = 0;
};
inline thread_local Index thread_index;
inline Index block_index;
inline Index block_size;
inline Index grid_size;
inline std::barrier<>* block_barrier = nullptr;

// Calls kernel(arguments...) for each thread of the grid.
template <typename Kernel, typename... Arguments>
void Launch(Kernel kernel, unsigned grid, unsigned block, Arguments... arguments) {
  std::barrier<> barrier(block);
  block_barrier = &barrier;
  block_size = {block};
  grid_size = {grid};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < block; ++t) {
    threads.emplace_back([&, t] {
      thread_index = {t};
      for (unsigned b = 0; b < grid; ++b) {
        if (t == 0) block_index = {b};
        barrier.arrive_and_wait();
        kernel(arguments...);
        barrier.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
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

inline void __syncthreads() { ::cudaforge::on_host::block_barrier->arrive_and_wait(); }
template <typename T>
T atomicAdd(T* to, T value) {
  return std::atomic_ref<T>(*to).fetch_add(value);
}
template <typename T>
T atomicMin(T* to, T value) {
  T seen = std::atomic_ref<T>(*to).load();
  while (value < seen && !std::atomic_ref<T>(*to).compare_exchange_weak(seen, value)) {
  }
  return seen;
}
template <typename T>
T atomicMax(T* to, T value) {
  T seen = std::atomic_ref<T>(*to).load();
  while (value > seen && !std::atomic_ref<T>(*to).compare_exchange_weak(seen, value)) {
  }
  return seen;
}
