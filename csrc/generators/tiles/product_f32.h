// Products in float32: float32's accuracy on half-precision tensor cores, see docs/products.md.
// Hopper's: product_f32_sm90.cuh; by mma.sync: product_f32_mma.cuh.
#pragma once

#include <vector>

#include "base/status.h"
#include "generators/tiles/contraction.h"
#include "generators/tiles/product_half_mma.h"
#include "kernel/candidate.h"

namespace cudaforge::tiles {

// kUnsupported: sizes for which no kernel is made, or results of two products together.
Status CanMakeF32(const Contraction& contraction);

// The schedules worth trying, the best guess first: numbers of parts of each sum.
std::vector<int64_t> F32Schedules(const Contraction& contraction, int64_t multiprocessors);

Candidate WriteF32(const Contraction& contraction, int64_t parts, int64_t multiprocessors);

// As WriteF32, by mma.sync.
Candidate WriteF32Mma(const Contraction& contraction, int64_t parts, const MmaDevice& device);

}  // namespace cudaforge::tiles
