// Rewrites of programs that read once what several stages need.
#pragma once

#include <cstdint>

#include "generators/row_program.h"

namespace cudaforge::rows {

// Moves sums of columns into stages that read the same elements row by row (the gradients of a
// norm's weight and bias beside that of its input): such a stage sums over about `runs` runs of
// rows, and another one adds the partial sums up. Results are those of `program` but for the order
// of the sums. kUnsupported when there is nothing to move.
Result<Program> FuseColumnSums(const Program& program, int64_t runs);

}  // namespace cudaforge::rows
