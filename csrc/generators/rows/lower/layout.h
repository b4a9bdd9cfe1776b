// Loop order and shape of a stage: fewer, longer loops in memory order.
#pragma once

#include "generators/rows/row_program.h"

namespace cudaforge::rows {

// Orders loops by memory, merges neighbours, sets spaces. Keeps the order of inner loops if a
// result depends on it.
void LayoutStage(Stage& stage);

// For a stage without reductions and scans: moves loops between outer and inner, so that rows are
// contiguous with at most `longest` elements if the sizes allow it.
void ShapeElementwise(Stage& stage, int64_t longest);

}  // namespace cudaforge::rows
