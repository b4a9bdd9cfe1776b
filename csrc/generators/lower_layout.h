// Loop order and shape of a stage: fewer, longer loops that follow memory.
#pragma once

#include "generators/row_program.h"

namespace cudaforge::rows {

// Orders loops by memory, merges neighbours, sets spaces. Inner loops keep their order where a
// result depends on it.
void LayoutStage(Stage& stage);

// For a stage without reductions and scans: turns outer loops inside (or inner loops out) so that
// rows are contiguous and at most `longest` elements, where the sizes allow it.
void ShapeElementwise(Stage& stage, int64_t longest);

}  // namespace cudaforge::rows
