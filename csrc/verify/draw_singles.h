// Special values in single places, and groups that one element decides.
#pragma once

#include <cstdint>

#include "verify/draw_kinds.h"

namespace cudaforge {

// Whether a set of this recipe draws special values in single places of an input of such a role
// (kNanOperands, kInfiniteOperands).
bool TakesSingles(InputRole::Kind role, DrawRecipe recipe);

// Four special values in single places, where the recipe and the role have them.
void SetSpots(const DrawnInput& input, DrawRecipe recipe, uint64_t random,
              device::DrawnTensor* tensor);

// The patterns of kOneUnlike (`sign` 0) and of kFarOut (1: of maxima; -1: of minima, the opposites
// first), those that tell most first.
void SetPatterns(DType dtype, int sign, uint64_t random, device::DrawnTensor* tensor);

}  // namespace cudaforge
