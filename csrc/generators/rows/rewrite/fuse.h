// Rewrites programs so that data for several stages is read once.
#pragma once

#include <cstdint>

#include "generators/rows/row_program.h"

namespace cudaforge::rows {

// Moves sums of columns into stages that read the same elements by rows (as a norm's weight
// gradients, with the input's). That stage sums over about `runs` runs of rows; another adds the
// partial sums. Results differ only by the order of the sums. kUnsupported: nothing to move.
Result<Program> FuseColumnSums(const Program& program, int64_t runs);

}  // namespace cudaforge::rows
