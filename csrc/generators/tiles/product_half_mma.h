// Products by mma.sync, for GPUs whose tensor cores have no wgmma: in float16 and bfloat16, see
// product_half_mma.cuh. Those in float32: product_f32.h.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "generators/tiles/contraction.h"
#include "kernel/candidate.h"
#include "signature/device_arch.h"

namespace cudaforge::tiles {

// What schedules depend on.
struct MmaDevice {
  // What the device does not report is that of the smallest of MmaTargets. REQUIRES:
  // KnowsMultiprocessors(arch).
  explicit MmaDevice(const DeviceArch& arch);

  int64_t multiprocessors;
  int64_t block_bytes;  // of shared memory that a block may have
  int64_t all_bytes;    // of a multiprocessor, for its blocks and kBlockReserve for each
  static constexpr int64_t kBlockReserve = 1024;
};

// Returns true for "cuda:sm_80" and the others whose products are made by mma.sync.
bool IsMmaTarget(std::string_view target);

struct MmaSchedule {
  int64_t n = 128;    // columns of a tile; rows are 128
  int64_t parts = 1;  // of each sum
};

// kNotFound: several products. kUnsupported: sizes for which no kernel is made.
Status CanMakeHalfMma(const Contraction& contraction);

// The schedules worth trying, the best guess first. REQUIRES: CanMakeHalfMma.
std::vector<MmaSchedule> HalfMmaSchedules(const Contraction& contraction, const MmaDevice& device);

Candidate WriteHalfMma(const Contraction& contraction, const MmaSchedule& schedule,
                       const MmaDevice& device);

}  // namespace cudaforge::tiles
