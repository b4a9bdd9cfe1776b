// Products in float32: float32's accuracy on Hopper's half-precision tensor cores, see
// product_f32_sm90.cuh and docs/numerics.md.
#pragma once

#include <vector>

#include "base/status.h"
#include "generators/tiles/contraction.h"
#include "kernel/candidate.h"

namespace cudaforge::tiles {

// kUnsupported: sizes for which no kernel is made.
Status CanMakeF32(const Contraction& contraction);

// The schedules worth trying, the best guess first: numbers of parts of each sum.
std::vector<int64_t> F32Schedules(const Contraction& contraction, int64_t multiprocessors);

Candidate WriteF32(const Contraction& contraction, int64_t parts, int64_t multiprocessors);

}  // namespace cudaforge::tiles
