// For cuda_shim.h, what products by mma.sync need: the functions of device/matrices.cuh,
// device/mma.cuh and device/async_copy.cuh emulated as the PTX ISA describes them. Addresses of
// shared memory are offsets in dynamic_shared.
#pragma once

#include <deque>

#include "tests/cpp/generators/cuda_shim.h"
#include "tests/cpp/generators/warp_shim.h"

#define gridDim shim_grid

inline ShimIndex shim_grid;
inline bool shim_copies_late = true;  // at the wait for them, else at once
inline int shim_faults = 0;           // misaligned addresses and bank conflicts

inline int __syncthreads_or(int x) {
  return static_cast<int>(ShimReduce(x != 0, 0, shim_block.all.size, shim_block.all,
                                     [](unsigned a, unsigned b) { return a | b; }));
}

inline size_t __cvta_generic_to_shared(const void* p) {
  return static_cast<size_t>(static_cast<const char*>(p) -
                             reinterpret_cast<const char*>(dynamic_shared));
}
inline char* ShimShared(unsigned address, int bytes) {
  if (address + static_cast<size_t>(bytes) > sizeof(dynamic_shared)) __builtin_trap();
  return reinterpret_cast<char*>(dynamic_shared) + address;
}

struct ShimCopy {
  unsigned to;
  const void* from;
  int bytes, size;

  void Run() const {
    char* target = ShimShared(to, size);
    memset(target, 0, static_cast<size_t>(size));
    memcpy(target, from, static_cast<size_t>(bytes));
  }
};
// Of each thread, the oldest group first; the last is open.
inline std::deque<std::vector<ShimCopy>> shim_copies[1024];
inline std::deque<std::vector<ShimCopy>>& ShimCopies() {
  std::deque<std::vector<ShimCopy>>& groups = shim_copies[shim_block.current];
  if (groups.empty()) groups.emplace_back();
  return groups;
}
template <int kSize>
void AsyncCopyOf(unsigned to, const void* from, int bytes) {
  if (to % kSize != 0 || reinterpret_cast<uintptr_t>(from) % kSize != 0) ++shim_faults;
  const ShimCopy copy = {to, from, bytes, kSize};
  if (!shim_copies_late) return copy.Run();
  ShimCopies().back().push_back(copy);
}
inline void AsyncCopy(unsigned to, const void* from, int bytes = 16) {
  AsyncCopyOf<16>(to, from, bytes);
}
inline void AsyncCommit() { ShimCopies().emplace_back(); }
template <int kPending>
void AsyncWait() {
  std::deque<std::vector<ShimCopy>>& groups = ShimCopies();
  for (; groups.size() > kPending + 1; groups.pop_front()) {
    for (const ShimCopy& copy : groups.front()) copy.Run();
  }
}

// What lanes of a warp pass to each other in one instruction. Two buffers in turn, because a lane
// may be one instruction ahead.
struct ShimWords {
  unsigned of[6];
};
struct ShimOfLane {
  ShimWords words[2];
  int turn = 0;
};
inline ShimOfLane shim_lanes[1024];

// The words of all lanes; lane i's are at [i].words[turn].
struct ShimGathered {
  const ShimOfLane* lanes;
  int turn;
  unsigned operator()(int lane, int word) const { return lanes[lane].words[turn].of[word]; }
};
inline ShimGathered ShimGather(const ShimWords& words) {
  ShimOfLane& own = shim_lanes[shim_block.current];
  own.turn ^= 1;
  const ShimGathered all = {shim_lanes + shim_block.current / 32 * 32, own.turn};
  own.words[own.turn] = words;
  ShimWait(ShimWarp());
  return all;
}

template <bool kTransposed>
void ShimLoadMatrices(unsigned from, unsigned (&pairs)[4]) {
  const ShimGathered all = ShimGather({from});
  const int lane = shim_block.current % 32;
  for (int i = 0; i < 4; ++i) {
    unsigned banks = 0;
    for (int row = 0; row < 8; ++row) {
      const unsigned address = all(8 * i + row, 0);
      if (address % 16 != 0) ++shim_faults;
      banks |= 1u << address / 16 % 8;
    }
    if (banks != 255) ++shim_faults;
    unsigned short halves[2];
    for (int j = 0; j < 2; ++j) {
      const int major = lane / 4, minor = lane % 4 * 2 + j;
      const int row = kTransposed ? minor : major, column = kTransposed ? major : minor;
      memcpy(&halves[j], ShimShared(all(8 * i + row, 0), 16) + 2 * column, 2);
    }
    memcpy(&pairs[i], halves, 4);
  }
}
inline void LoadMatrices(unsigned from, unsigned (&pairs)[4]) {
  ShimLoadMatrices<false>(from, pairs);
}
inline void LoadTransposed(unsigned from, unsigned (&pairs)[4]) {
  ShimLoadMatrices<true>(from, pairs);
}

inline void StoreHalves(unsigned to, const unsigned short (&x)[8]) {
  if (to % 16 != 0) ++shim_faults;
  memcpy(ShimShared(to, 16), x, 16);
}

template <bool kBFloat16>
double ShimHalf(unsigned pair, int which) {
  const auto bits = static_cast<unsigned short>(pair >> 16 * which);
  if (kBFloat16) return __uint_as_float(static_cast<unsigned>(bits) << 16);
  _Float16 half;
  memcpy(&half, &bits, 2);
  return static_cast<double>(half);
}

template <bool kBFloat16>
void MultiplyFragments(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const ShimGathered all = ShimGather({a[0], a[1], a[2], a[3], b0, b1});
  const int lane = shim_block.current % 32;
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    double sum = 0;
    for (int k = 0; k < 16; ++k) {
      const unsigned from_a = all(row % 8 * 4 + k % 8 / 2, row / 8 + k / 8 * 2);
      const unsigned from_b = all(column * 4 + k % 8 / 2, 4 + k / 8);
      sum += ShimHalf<kBFloat16>(from_a, k % 2) * ShimHalf<kBFloat16>(from_b, k % 2);
    }
    d[i] = static_cast<float>(d[i] + sum);
  }
}

// Before a launch with a grid of `x`, for the blocks with this index y.
extern "C" inline __attribute__((used)) void ShimSetGrid(unsigned x, unsigned index_y, int late) {
  shim_grid.x = x;
  shim_block_index.y = index_y;
  shim_copies_late = late != 0;
}
extern "C" inline __attribute__((used)) int ShimFaults() { return shim_faults; }
