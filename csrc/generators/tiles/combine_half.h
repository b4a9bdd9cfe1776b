// The kernel that adds up the parts of a product's sums in half types: combine_half.cuh.
#pragma once

#include <string>

#include "generators/tiles/contraction.h"
#include "generators/tiles/epilogue.h"
#include "generators/tiles/units.h"
#include "kernel/candidate.h"

namespace cudaforge::tiles {

// Adds the kernel `combine` to the text, which has combine_half.cuh, and its launch, for `in_parts`
// tiles (none: nothing) whose sums are in `partial`.
void AddCombine(const Contraction& contraction, const Tiles& tiles, int64_t in_parts,
                const EpilogueText& epilogue, const LaunchArg& partial, Candidate& candidate);

}  // namespace cudaforge::tiles
