// Runs kernels for Hopper on the host, after cuda_shim.h: host_kernels.h takes device/,
// tiles/warps_sm90.cuh and MmaText out of the text, which this replaces. Copies arrive late, in a
// random order. Products are done at once, by each warp; addresses of shared memory are offsets.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <map>

#include "tests/cpp/generators/warp_shim.h"

#define __restrict__
#undef __shared__
#define __shared__ static  // near dynamic_memory: addresses are 32 bits
#define __grid_constant__

inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline ShimIndex gridDim;
alignas(1024) inline unsigned char dynamic_memory[256 * 1024];  // its declarations are erased

[[noreturn]] inline void ShimFail(const char* why) {
  std::fprintf(stderr, "%s\n", why);
  std::abort();
}
inline void ShimYield() {
  swapcontext(&shim_block.fibers[shim_block.current].context, &shim_block.scheduler);
}

template <class T>
void atomicMax(T* to, T x) {
  *to = max(*to, x);
}
template <class T>
void atomicMin(T* to, T x) {
  *to = min(*to, x);
}
template <class T>
T atomicAdd(T* to, T x) {
  const T before = *to;
  *to += x;
  return before;
}
struct __half2 {
  _Float16 x, y;
};
inline __half2 __floats2half2_rn(float x, float y) {
  return {static_cast<_Float16>(x), static_cast<_Float16>(y)};
}
inline float __low2float(__half2 h) { return static_cast<float>(h.x); }
inline float __high2float(__half2 h) { return static_cast<float>(h.y); }
inline float2 __half22float2(__half2 h) { return {__low2float(h), __high2float(h)}; }
inline __half2 __habs2(__half2 h) {
  return __floats2half2_rn(fabsf(__low2float(h)), fabsf(__high2float(h)));
}
inline __half2 __hmin2(__half2 a, __half2 b) {
  return __floats2half2_rn(fminf(__low2float(a), __low2float(b)),
                           fminf(__high2float(a), __high2float(b)));
}

// Shared memory.
inline unsigned SharedAddress(const void* p) {
  return static_cast<unsigned>(static_cast<const unsigned char*>(p) - dynamic_memory);
}
inline unsigned char* ShimAt(unsigned address) {
  return dynamic_memory + static_cast<int>(address);
}
inline float SharedFloat(unsigned address) {
  float x;
  memcpy(&x, ShimAt(address), 4);
  return x;
}
inline void SharedFloats(unsigned address, float (&x)[4]) { memcpy(x, ShimAt(address), 16); }
inline unsigned ShimSwizzled(unsigned address) { return address ^ (address >> 7 & 7) << 4; }

// Barriers.
struct ShimPhases {
  int count = 0, pending = 0;
  long bytes = 0;
  unsigned phase = 0;
};
inline std::map<unsigned, ShimPhases> shim_phases;
inline void ShimAdvance(ShimPhases& b, int arrivals, long bytes) {
  b.pending -= arrivals;
  b.bytes += bytes;
  if (b.pending < 0) ShimFail("a barrier has more arrivals than it expects");
  if (b.pending > 0 || b.bytes != 0) return;
  b.pending = b.count;
  b.phase ^= 1;
  shim_block.progress = true;
}
inline void BarrierInit(unsigned barrier, unsigned count) {
  shim_phases[barrier] = {static_cast<int>(count), static_cast<int>(count), 0, 0};
}
inline void BarrierArrive(unsigned barrier) { ShimAdvance(shim_phases.at(barrier), 1, 0); }
inline void BarrierExpect(unsigned barrier, unsigned bytes) {
  ShimAdvance(shim_phases.at(barrier), 1, bytes);
}

struct ShimCopy {
  std::vector<unsigned char> data;
  unsigned to, barrier;
};
inline std::vector<ShimCopy> shim_copies;
// One of those on their way arrives, now and then.
inline void ShimDeliver() {
  if (shim_copies.empty()) return;
  shim_block.progress = true;
  if (rand() % 64 != 0) return;
  const size_t i = static_cast<size_t>(rand()) % shim_copies.size();
  const ShimCopy copy = std::move(shim_copies[i]);
  shim_copies.erase(shim_copies.begin() + static_cast<long>(i));
  memcpy(ShimAt(copy.to), copy.data.data(), copy.data.size());
  ShimAdvance(shim_phases.at(copy.barrier), 0, -static_cast<long>(copy.data.size()));
}
inline void BarrierWait(unsigned barrier, unsigned parity) {
  while ((shim_phases.at(barrier).phase ^ 1) != parity) {
    ShimDeliver();
    ShimYield();
  }
}
inline ShimBarrier shim_named[16];
inline bool shim_any[16], shim_result[16];
// A block begins: arrivals of the one before that had no wait are gone.
inline void BarrierInitDone() {
  for (ShimBarrier& barrier : shim_named) barrier = {};
}
inline bool NamedBarrierOr(int number, int threads, bool mine) {
  ShimBarrier& barrier = shim_named[number];
  barrier.size = threads;
  shim_any[number] |= mine;
  if (barrier.arrived + 1 == threads) {
    shim_result[number] = shim_any[number];
    shim_any[number] = false;
  }
  ShimWait(barrier);
  return shim_result[number];
}
inline void NamedBarrier(int number, int threads) { NamedBarrierOr(number, threads, false); }
inline void NamedBarrierArrive(int number, int threads) {
  ShimBarrier& barrier = shim_named[number];
  barrier.size = threads;
  if (++barrier.arrived < threads) return;
  barrier.arrived = 0;
  ++barrier.generation;
  shim_block.progress = true;
}

// Copies.
inline void BulkCopy(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  const auto* begin = static_cast<const unsigned char*>(from);
  shim_copies.push_back({{begin, begin + bytes}, to, barrier});
}
struct CfTensorMap {
  const unsigned char* data;
  int64_t bytes;                         // of an element
  int64_t sizes[3], strides[2], box[2];  // strides in bytes; rows of 128 bytes, swizzled
};
inline void TensorCopy(unsigned to, const CfTensorMap& map, int x, int y, int z, unsigned barrier) {
  if (to % 1024 != 0 || map.box[0] * map.bytes != 128)
    ShimFail("a box that the swizzle does not fit");
  std::vector<unsigned char> data(static_cast<size_t>(map.box[1] * 128));
  for (int64_t j = 0; j < map.box[1]; ++j) {
    for (int64_t i = 0; i < map.box[0]; ++i) {
      if (x + i >= map.sizes[0] || y + j >= map.sizes[1] || z >= map.sizes[2]) continue;
      memcpy(data.data() + ShimSwizzled(static_cast<unsigned>(j * 128 + i * map.bytes)),
             map.data + (x + i) * map.bytes + (y + j) * map.strides[0] + z * map.strides[1],
             static_cast<size_t>(map.bytes));
    }
  }
  shim_copies.push_back({std::move(data), to, barrier});
}

// Products.
inline unsigned long long RowsOfK(unsigned address) {
  return static_cast<unsigned long long>(address) << 16;  // below it, units of 16 bytes
}
inline void MmaFence() {}
inline void MmaCommit() {}
template <int kPending, int kSize>
void MmaWait(float (&)[kSize]) {}
inline unsigned shim_fragments[1024][4];
// With A in registers.
template <int kAdd, int kSize>
void Mma(float (&d)[kSize], const unsigned (&a)[4], unsigned long long b) {
  memcpy(shim_fragments[shim_block.current], a, sizeof(a));
  __syncwarp();
  const int q = ShimLane() % 4;
  float rows[2][16];
  for (int from = 0; from < 4; ++from) {
    for (int i = 0; i < 4; ++i) {
      __half2 h;
      memcpy(&h, &shim_fragments[shim_block.current - q + from][i], 4);
      rows[i % 2][2 * from + i / 2 * 8] = __low2float(h);
      rows[i % 2][2 * from + i / 2 * 8 + 1] = __high2float(h);
    }
  }
  for (int i = 0; i < kSize; ++i) {
    const int column = i / 4 * 8 + 2 * q + i % 2;
    double sum = kAdd ? d[i] : 0.0;
    for (int k = 0; k < 16; ++k) {
      const unsigned at = static_cast<unsigned>(b >> 16) + static_cast<unsigned>(b & 0xffff) * 16;
      _Float16 h;
      memcpy(&h, ShimAt(ShimSwizzled(at + static_cast<unsigned>(column * 128 + k * 2))), 2);
      sum += static_cast<double>(rows[i % 4 / 2][k]) * static_cast<double>(h);
    }
    d[i] = static_cast<float>(sum);
  }
  __syncwarp();
}

// With both in shared memory.
inline unsigned long long RowsOfOneK(unsigned address, unsigned bytes) {
  return RowsOfK(address) | static_cast<unsigned long long>(bytes >> 4) << 48;
}
template <bool kBFloat16>
double ShimHalf(unsigned address) {
  unsigned short bits;
  memcpy(&bits, ShimAt(ShimSwizzled(address)), 2);
  if (kBFloat16) return __uint_as_float(static_cast<unsigned>(bits) << 16);
  _Float16 h;
  memcpy(&h, &bits, 2);
  return static_cast<double>(h);
}
template <bool kBFloat16, bool kRowsHoldK>
double ShimElement(unsigned long long operand, int row, int k) {
  const unsigned at =
      static_cast<unsigned>(operand >> 16) + static_cast<unsigned>(operand & 0xffff) * 16;
  if (kRowsHoldK) return ShimHalf<kBFloat16>(at + static_cast<unsigned>(row * 128 + k * 2));
  const auto next = static_cast<int>(operand >> 48) * 16;  // 64 rows further
  return ShimHalf<kBFloat16>(at + static_cast<unsigned>(row / 64 * next + k * 128 + row % 64 * 2));
}
template <bool kBFloat16, bool kARowsHold, bool kBRowsHold, int kSize>
void ShimMultiply(float (&d)[kSize], unsigned long long a, unsigned long long b, bool add) {
  const int lane = ShimLane(), warp = shim_block.current / 32 % 4;
  for (int i = 0; i < kSize; ++i) {
    const int row = warp * 16 + lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    double sum = add ? d[i] : 0.0;
    for (int k = 0; k < 16; ++k)
      sum += ShimElement<kBFloat16, kARowsHold>(a, row, k) *
             ShimElement<kBFloat16, kBRowsHold>(b, column, k);
    d[i] = static_cast<float>(sum);
  }
}

// Matrices.
inline void StoreMatrices(unsigned to, const unsigned (&pairs)[4]) {
  for (int i = 0; i < 4; ++i) {
    const unsigned row = ShimExchange(to, 8 * i + ShimLane() / 4);
    memcpy(ShimAt(row) + ShimLane() % 4 * 4, &pairs[i], 4);
  }
  __syncwarp();
}
inline void LoadMatrices(unsigned from, unsigned (&pairs)[4]) {
  for (int i = 0; i < 4; ++i) {
    const unsigned row = ShimExchange(from, 8 * i + ShimLane() / 4);
    memcpy(&pairs[i], ShimAt(row) + ShimLane() % 4 * 4, 4);
  }
}
inline void StoreShared(unsigned to, uint4 x) { memcpy(ShimAt(to), &x, 16); }
inline uint4 LoadShared(unsigned from) {
  uint4 x;
  memcpy(&x, ShimAt(from), 16);
  return x;
}

template <int kCount>
void LowerRegisters() {}
template <int kCount>
void RaiseRegisters() {}
inline void ShowToProducts() {}
inline void PrefetchLine(const void* at) {
  volatile unsigned char touched = *static_cast<const unsigned char*>(at);  // is it readable?
  (void)touched;
}
inline int ThreadHere() { return static_cast<int>(threadIdx.x); }

// Any pointer.
struct ShimPointer {
  void* p;
  template <class T>
  operator T*() const {
    return static_cast<T*>(p);
  }
};

template <class Body>
int ShimRun(int64_t grid, int threads, Body body) {
  static Body* current;
  current = &body;
  gridDim.x = static_cast<unsigned>(grid);
  for (ShimBarrier& barrier : shim_named) barrier = {};
  return ShimLaunch(
      +[] { (*current)(); }, nullptr, 0, grid, threads);
}
