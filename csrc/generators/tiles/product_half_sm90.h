// Products in float16 and bfloat16 on Hopper's tensor cores, see product_half_sm90.cuh.
#pragma once

#include <vector>

#include "base/status.h"
#include "generators/tiles/contraction.h"
#include "kernel/candidate.h"

namespace cudaforge::tiles {

struct HalfSchedule {
  int64_t n = 128;     // columns of a tile; rows are 128
  int64_t groups = 1;  // warpgroups that share a tile; 1: one multiplies while the other stores
  int64_t parts = 1;   // of each sum
};

// kUnsupported: sizes for which no kernel is made, or operands that no tensor map describes.
Status CanMakeHalf(const Contraction& contraction);

// The schedules worth trying, the best guess first. REQUIRES: CanMakeHalf.
std::vector<HalfSchedule> HalfSchedules(const Contraction& contraction, int64_t multiprocessors);

Candidate WriteHalf(const Contraction& contraction, const HalfSchedule& schedule,
                    int64_t multiprocessors);

}  // namespace cudaforge::tiles
