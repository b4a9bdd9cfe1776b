// How many blocks of a kernel fit on a multiprocessor, and which resource limits that. The driver
// only gives the number (cuOccupancyMaxActiveBlocksPerMultiprocessor).
#pragma once

#include <climits>
#include <cstdint>

namespace cudaforge {

// Limits of one multiprocessor, from the driver's attributes.
struct MultiprocessorLimits {
  int capability_major = 0;
  int warp_size = 32;
  int threads = 0;
  int blocks = 0;
  int registers = 0;
  int registers_per_block = 0;
  int64_t shared_bytes = 0;
  int64_t reserved_shared_bytes = 0;  // used by the driver for each block
};

struct BlockNeeds {
  int threads = 1;
  int registers = 0;         // a thread
  int64_t shared_bytes = 0;  // static and dynamic
};

// Blocks per multiprocessor; kNoLimit for unused resources.
struct BlockLimits {
  static constexpr int kNoLimit = INT_MAX;
  int warps = 0;
  int blocks = 0;
  int registers = 0;
  int shared = 0;
};

// For compute capability 7.0 and later, with the largest shared memory carve-out.
BlockLimits LimitsOfBlocks(const MultiprocessorLimits& sm, const BlockNeeds& needs);

}  // namespace cudaforge
