// Rewrites of programs that give few long rows more parallelism. See also SplitStage in
// row_program.h.
#pragma once

#include <cstddef>

#include "generators/row_program.h"

namespace cudaforge::rows {

// Stage `s` as one stage per sweep: each computes its reductions into scratch, the last one writes
// the element stores with rows cut to length. kUnsupported when the stage scans, or has no second
// sweep to separate.
Result<Program> SeparateSweeps(const Program& program, size_t s);

}  // namespace cudaforge::rows
