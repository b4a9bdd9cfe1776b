// How many blocks of a kernel a multiprocessor holds at once, and which resource is the first to
// run out. The driver tells the number alone (cuOccupancyMaxActiveBlocksPerMultiprocessor).
#pragma once

#include <climits>
#include <cstdint>

namespace cudaforge {

// Of one multiprocessor, as the driver's attributes tell them.
struct MultiprocessorLimits {
  int capability_major = 0;
  int warp_size = 32;
  int threads = 0;
  int blocks = 0;
  int registers = 0;
  int registers_per_block = 0;
  int64_t shared_bytes = 0;
  int64_t reserved_shared_bytes = 0;  // taken by the driver for each block
};

struct BlockNeeds {
  int threads = 1;
  int registers = 0;         // a thread
  int64_t shared_bytes = 0;  // static and dynamic
};

// Blocks a multiprocessor; kNoLimit where a resource is not used.
struct BlockLimits {
  static constexpr int kNoLimit = INT_MAX;
  int warps = 0;
  int blocks = 0;
  int registers = 0;
  int shared = 0;
};

// For compute capability 7.0 and later, with the largest share of the L1 given to shared memory.
BlockLimits LimitsOfBlocks(const MultiprocessorLimits& sm, const BlockNeeds& needs);

}  // namespace cudaforge
