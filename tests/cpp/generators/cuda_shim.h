// Runs generated CUDA text on the host: prefix for the text, compiled as a shared library. One
// fiber per CUDA thread, one block at a time. Barriers and shuffles wait for all threads of the
// block or warp; if some never arrive, reports an error. Not thread-safe.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ thread_local
#define __launch_bounds__(...)

struct uint2 {
  unsigned int x, y;
};
struct uint4 {
  unsigned int x, y, z, w;
};
struct ShimIndex {
  unsigned int x = 0, y = 0, z = 0;
};

struct ShimBarrier {
  int size = 0, arrived = 0, generation = 0;
};

struct ShimFiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  ShimIndex thread;
  bool done = false;
};

struct ShimBlock {
  std::vector<ShimFiber> fibers;
  std::vector<ShimBarrier> warps;
  ShimBarrier all;
  std::vector<uint64_t> exchange;
  ucontext_t scheduler;
  void (*kernel)() = nullptr;
  void** args = nullptr;
  int arg_count = 0;
  int current = 0;
  bool progress = false;
};
inline ShimBlock shim_block;
inline ShimIndex shim_block_index;
// 208 KiB, poisoned before each block.
thread_local uint4 dynamic_shared[13312];

#define threadIdx (shim_block.fibers[shim_block.current].thread)
#define blockIdx shim_block_index

inline void ShimWait(ShimBarrier& barrier) {
  const int generation = barrier.generation;
  if (++barrier.arrived == barrier.size) {
    barrier.arrived = 0;
    ++barrier.generation;
    shim_block.progress = true;
    return;
  }
  while (barrier.generation == generation) {
    swapcontext(&shim_block.fibers[shim_block.current].context, &shim_block.scheduler);
  }
}
inline void __syncthreads() { ShimWait(shim_block.all); }

template <class T>
T ShimExchange(T x, int source) {
  ShimBarrier& warp = shim_block.warps[shim_block.current / 32];
  const int base = shim_block.current / 32 * 32;
  uint64_t bits = 0;
  memcpy(&bits, &x, sizeof(T));
  shim_block.exchange[shim_block.current] = bits;
  ShimWait(warp);
  bits = shim_block.exchange[base + source];
  ShimWait(warp);
  memcpy(&x, &bits, sizeof(T));
  return x;
}
template <class T>
T __shfl_xor_sync(unsigned, T x, int mask) {
  return ShimExchange(x, (shim_block.current % 32) ^ mask);
}
template <class T>
T __shfl_up_sync(unsigned, T x, int delta, int width) {
  const int lane = shim_block.current % 32;
  return ShimExchange(x, lane % width < delta ? lane : lane - delta);
}
template <class T>
T __shfl_sync(unsigned, T x, int source, int width) {
  const int lane = shim_block.current % 32;
  return ShimExchange(x, lane / width * width + source % width);
}
template <class T>
T __ldg(const T* p) {
  if (reinterpret_cast<uintptr_t>(p) % alignof(T) != 0 && sizeof(T) < 8) __builtin_trap();
  if (sizeof(T) >= 8 && reinterpret_cast<uintptr_t>(p) % sizeof(T) != 0) __builtin_trap();
  T x;
  memcpy(&x, p, sizeof(T));
  return x;
}
template <class T>
void __stwb(T* p, T x) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(T) != 0) __builtin_trap();
  memcpy(p, &x, sizeof(T));
}
inline float __int_as_float(int x) {
  float f;
  memcpy(&f, &x, 4);
  return f;
}
inline int __float_as_int(float f) {
  int x;
  memcpy(&x, &f, 4);
  return x;
}
inline double __longlong_as_double(long long x) {
  double f;
  memcpy(&f, &x, 8);
  return f;
}
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

// A kernel ignores extra arguments, because the caller cleans up.
constexpr int kShimArgs = 24;
template <size_t... I>
void ShimApply(void (*f)(), void* const* x, std::index_sequence<I...>) {
  reinterpret_cast<void (*)(std::remove_reference_t<decltype(x[I])>...)>(f)(x[I]...);
}
inline void ShimCall(void (*f)(), void** a, int n) {
  void* x[kShimArgs] = {};
  if (n > kShimArgs) __builtin_trap();
  for (int i = 0; i < n; ++i) x[i] = a[i];
  ShimApply(f, x, std::make_index_sequence<kShimArgs>());
}
inline void ShimBody() {
  ShimCall(shim_block.kernel, shim_block.args, shim_block.arg_count);
  shim_block.fibers[shim_block.current].done = true;
  shim_block.progress = true;
  swapcontext(&shim_block.fibers[shim_block.current].context, &shim_block.scheduler);
}

// Runs `grid` blocks of `threads`. 0, or 1 when a block's threads disagree on a barrier.
extern "C" inline __attribute__((used)) int ShimLaunch(void (*kernel)(), void** args, int arg_count,
                                                       int64_t grid, int threads) {
  constexpr size_t kStack = 128 * 1024;
  ShimBlock& b = shim_block;
  b.kernel = kernel;
  b.args = args;
  b.arg_count = arg_count;
  if (static_cast<int>(b.fibers.size()) < threads) {
    b.fibers = std::vector<ShimFiber>(threads);
    for (ShimFiber& f : b.fibers) f.stack.reset(new char[kStack]);
  }
  b.exchange.assign(threads, 0);
  for (int64_t block = 0; block < grid; ++block) {
    shim_block_index.x = static_cast<unsigned>(block);
    memset(dynamic_shared, 0xff, sizeof(dynamic_shared));
    b.all = {threads, 0, 0};
    b.warps.assign(threads / 32, {32, 0, 0});
    for (int t = 0; t < threads; ++t) {
      ShimFiber& f = b.fibers[t];
      f.done = false;
      f.thread.x = static_cast<unsigned>(t);
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.get();
      f.context.uc_stack.ss_size = kStack;
      f.context.uc_link = nullptr;
      makecontext(&f.context, ShimBody, 0);
    }
    // A warp goes on for as long as it can; the last warps come first in every other block.
    int left = threads;
    while (left > 0) {
      bool progress = false;
      left = 0;
      const int warps = (threads + 31) / 32;
      for (int i = 0; i < warps; ++i) {
        const int first = (block % 2 == 0 ? i : warps - 1 - i) * 32;
        int left_of_warp = 0;
        do {
          b.progress = false;
          left_of_warp = 0;
          for (int t = first; t < first + 32 && t < threads; ++t) {
            if (b.fibers[t].done) continue;
            b.current = t;
            swapcontext(&b.scheduler, &b.fibers[t].context);
            left_of_warp += b.fibers[t].done ? 0 : 1;
          }
          progress = progress || b.progress;
        } while (b.progress && left_of_warp > 0);
        left += left_of_warp;
      }
      if (left > 0 && !progress) return 1;
    }
  }
  return 0;
}
