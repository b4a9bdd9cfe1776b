// From the graph to stages: which reductions share a loop nest, and what is stored in scratch
// buffers and outputs.
#pragma once

#include <vector>

#include "generators/rows/lower/graph.h"

namespace cudaforge::rows {

struct GraphOutput {
  int node = 0;
  TensorSpec spec;  // node sizes and type agree with it
};

// One stage for each group of reductions with the same rows, in dependency order, and one for the
// rest. kUnsupported: an index map that cannot be composed.
Result<Program> BuildStages(const Graph& graph, const std::vector<TensorSpec>& inputs,
                            const std::vector<GraphOutput>& outputs);

}  // namespace cudaforge::rows
