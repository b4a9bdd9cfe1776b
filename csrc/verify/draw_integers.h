// Kinds of rows of integers and booleans.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/draw_kinds.h"

namespace cudaforge {

// Integers from `low` to low + range - 1, distributed by the form.
device::DrawRowKind IntegerRow(device::DrawForm form, int64_t low, int64_t range, int detail = 0);

// The kinds in rotation. `random`: secret. REQUIRES: an input of the dtype.
std::vector<device::DrawRowKind> IntegerKinds(const DrawnInput& input, DrawRecipe recipe,
                                              uint64_t random);
std::vector<device::DrawRowKind> BooleanKinds(const DrawnInput& input, DrawRecipe recipe);

}  // namespace cudaforge
