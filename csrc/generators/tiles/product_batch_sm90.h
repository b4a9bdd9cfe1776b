// Products in float32 of many small matrices, for Hopper, see product_batch_sm90.cuh.
#pragma once

#include "base/status.h"
#include "generators/tiles/contraction.h"
#include "kernel/candidate.h"

namespace cudaforge::tiles {

// kUnsupported: no batch of small matrices, or operands that no tensor map describes.
Status CanMakeBatch(const Contraction& contraction);

// REQUIRES: CanMakeBatch.
Candidate WriteBatch(const Contraction& contraction, int64_t multiprocessors);

}  // namespace cudaforge::tiles
