// Rewrites programs with few long rows for more parallelism.
#pragma once

#include <cstddef>

#include "generators/rows/row_program.h"

namespace cudaforge::rows {

// Splits the reduces of stage `s` into `chunks` parts of its inner space: a stage of partial
// results in scratch, and one that combines them. kUnsupported: the stage has element stores or
// more than one sweep.
Result<Program> SplitStage(const Program& program, size_t s, int64_t chunks);

// Makes one stage per sweep of stage `s`: each stores its reductions in scratch; the last one
// writes the element stores with shorter rows. kUnsupported: the stage scans, or has only one
// sweep.
Result<Program> SeparateSweeps(const Program& program, size_t s);

}  // namespace cudaforge::rows
