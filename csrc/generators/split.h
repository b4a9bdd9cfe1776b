// Rewrites of programs that give few long rows more parallelism.
#pragma once

#include <cstddef>

#include "generators/row_program.h"

namespace cudaforge::rows {

// Splits the reduces of stage `s` over `chunks` parts of its inner space: a stage of partial
// results into scratch, and one that combines them. kUnsupported when the stage has element stores
// or more than one sweep.
Result<Program> SplitStage(const Program& program, size_t s, int64_t chunks);

// Stage `s` as one stage per sweep: each computes its reductions into scratch, the last one writes
// the element stores with rows cut to length. kUnsupported when the stage scans, or has no second
// sweep to separate.
Result<Program> SeparateSweeps(const Program& program, size_t s);

}  // namespace cudaforge::rows
