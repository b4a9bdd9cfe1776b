// Products in float32 in which one operand has few rows (or columns), at most 256: a linear layer
// for few tokens, say. The other operand is not split ahead, but where it is read: once for 128 of
// them. See product_few_sm90.cuh.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "generators/tiles/contraction.h"
#include "kernel/candidate.h"

namespace cudaforge::tiles {

// kUnsupported: several products, sizes for which no kernel is made, or a large operand that no
// tensor map describes.
Status CanMakeFew(const Contraction& contraction);

// The schedules worth trying, the best guess first: numbers of parts of each sum.
// REQUIRES: CanMakeFew.
std::vector<int64_t> FewSchedules(const Contraction& contraction, int64_t multiprocessors);

// REQUIRES: CanMakeFew.
Candidate WriteFew(const Contraction& contraction, int64_t parts, int64_t multiprocessors);

}  // namespace cudaforge::tiles
