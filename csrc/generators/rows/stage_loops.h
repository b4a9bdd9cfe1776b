// A stage's loops and the order of its values, for both emitters.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "generators/rows/row_program.h"

namespace cudaforge::rows {

// Returns the values that `roots` need, including roots, stopping at values in `known`; in SSA
// order.
std::vector<int> Closure(const Stage& stage, const std::vector<int>& roots,
                         const std::set<int>& known);

// Returns the values that some store or run sum needs, in SSA order. The rest is dead.
std::vector<int> LiveValues(const Stage& stage);

// Merges adjacent outer dimensions, and adjacent inner ones, if every access and index value allows
// it. Drops dimensions of size 1. Same results, fewer loops.
Stage Coalesce(const Stage& stage);

// A rough count of the element operations of one row (a transcendental counts 8), for grains and
// guesses.
int64_t RowCost(const Stage& stage);

}  // namespace cudaforge::rows
