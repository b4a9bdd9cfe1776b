// More of CUDA for kernels on the host, after cuda_shim.h: vectors, intrinsics of warps, halves.
#pragma once

#include <algorithm>

#define __align__(bytes) __attribute__((aligned(bytes)))

using std::max;
using std::min;
inline int min(int a, int b) { return a < b ? a : b; }  // also of constants
inline int max(int a, int b) { return a > b ? a : b; }

struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __float_as_uint(float f) { return static_cast<unsigned>(__float_as_int(f)); }
inline float __uint_as_float(unsigned x) { return __int_as_float(static_cast<int>(x)); }

// Warps.
inline int ShimLane() { return shim_block.current % 32; }
inline ShimBarrier& ShimWarp() { return shim_block.warps[shim_block.current / 32]; }
inline void __syncwarp() { ShimWait(ShimWarp()); }
template <class T>
T __shfl_sync(unsigned, T x, int source) {
  return ShimExchange(x, source);
}

// What each of `lanes` lanes from `first` passes to all of them: `x`, reduced by `of`.
template <class Of>
unsigned ShimReduce(unsigned x, int first, int lanes, ShimBarrier& barrier, Of of) {
  shim_block.exchange[shim_block.current] = x;
  ShimWait(barrier);
  unsigned result = static_cast<unsigned>(shim_block.exchange[first]);
  for (int i = 1; i < lanes; ++i)
    result = of(result, static_cast<unsigned>(shim_block.exchange[first + i]));
  ShimWait(barrier);
  return result;
}
template <class Of>
unsigned ShimReduceWarp(unsigned x, Of of) {
  return ShimReduce(x, shim_block.current / 32 * 32, 32, ShimWarp(), of);
}
inline unsigned __reduce_max_sync(unsigned, unsigned x) {
  return ShimReduceWarp(x, [](unsigned a, unsigned b) { return a > b ? a : b; });
}
inline unsigned __reduce_min_sync(unsigned, unsigned x) {
  return ShimReduceWarp(x, [](unsigned a, unsigned b) { return a < b ? a : b; });
}
inline unsigned __reduce_add_sync(unsigned, unsigned x) {
  return ShimReduceWarp(x, [](unsigned a, unsigned b) { return a + b; });
}
inline unsigned __ballot_sync(unsigned, bool x) {
  return ShimReduceWarp(x ? 1u << shim_block.current % 32 : 0u,
                        [](unsigned a, unsigned b) { return a | b; });
}

// Halves.
struct __half {
  _Float16 v;
};
inline __half __float2half_rn(float f) { return {static_cast<_Float16>(f)}; }
inline float __half2float(__half h) { return static_cast<float>(h.v); }
inline unsigned short __half_as_ushort(__half h) {
  unsigned short bits;
  memcpy(&bits, &h, 2);
  return bits;
}
