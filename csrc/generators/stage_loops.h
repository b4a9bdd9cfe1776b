// A stage's loops and the order of its values, as both emitters ask for them.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "generators/row_program.h"

namespace cudaforge::rows {

// Values that `roots` need, roots included, without passing through values in `known`; in SSA
// order.
std::vector<int> Closure(const Stage& stage, const std::vector<int>& roots,
                         const std::set<int>& known);

// Values that some store or sum over runs needs, in SSA order: the rest is dead.
std::vector<int> LiveValues(const Stage& stage);

// The stage with adjacent outer dimensions, and adjacent inner dimensions, merged wherever every
// access and index value allows it, and dimensions of size 1 dropped. Same results, fewer loops.
Stage Coalesce(const Stage& stage);

// Element operations of one row, as a rough count (a transcendental counts 8): for grains and
// guesses.
int64_t RowCost(const Stage& stage);

}  // namespace cudaforge::rows
