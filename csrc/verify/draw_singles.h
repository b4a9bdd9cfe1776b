// Special values at single places, and groups that one element decides.
#pragma once

#include <cstdint>

#include "verify/draw_kinds.h"

namespace cudaforge {

// Returns true if a set of this recipe puts special values at single places of an input with this
// role (kNanOperands, kInfiniteOperands).
bool TakesSingles(InputRole::Kind role, DrawRecipe recipe);

// Sets four special values at single places, if recipe and role have them.
void SetSpots(const DrawnInput& input, DrawRecipe recipe, uint64_t random,
              device::DrawnTensor* tensor);

// The patterns of kOneUnlike (`sign` 0) and of kFarOut (1: of maxima; -1: of minima, the opposites
// first). The most useful ones come first.
void SetPatterns(DType dtype, int sign, uint64_t random, device::DrawnTensor* tensor);

}  // namespace cudaforge
