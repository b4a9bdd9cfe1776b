// From the graph to stages: which reductions share a loop nest, what goes through scratch, what is
// stored where.
#pragma once

#include <vector>

#include "generators/lower_graph.h"

namespace cudaforge::rows {

struct GraphOutput {
  int node = 0;
  TensorSpec spec;  // node sizes and type agree with it
};

// One stage for each family of reductions with the same rows, in dependency order, and one for what
// is left. kUnsupported when an index map does not compose.
Result<Program> BuildStages(const Graph& graph, const std::vector<TensorSpec>& inputs,
                            const std::vector<GraphOutput>& outputs);

}  // namespace cudaforge::rows
