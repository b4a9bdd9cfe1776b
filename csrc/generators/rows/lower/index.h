// Index arithmetic: maps a loop position to a place in a logical tensor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generators/rows/lower/graph.h"

namespace cudaforge::rows {

// One DimIndex per dimension of a logical tensor, over the loops of one stage.
using Index = std::vector<DimIndex>;

struct Loops {
  std::vector<int64_t> outer;
  std::vector<int64_t> inner;
};

DimIndex ZeroIndex(const Loops& loops);
// The place of the loops themselves in a tensor of `sizes`: dimension d by outer loop d, the last
// by the inner loop; 0 where the size is 1.
Index OwnIndex(const std::vector<int64_t>& sizes, const Loops& loops);
bool IsPlain(const DimIndex& dim);  // no bound
bool IsPlain(const Index& index);
bool SameIndex(const DimIndex& a, const DimIndex& b);
bool SameIndex(const Index& a, const Index& b);
std::string IndexKey(const Index& index);
void AddScaled(DimIndex& to, const DimIndex& from, int64_t scale);

// The index of a broadcast operand with `sizes` if the result is read at `index`.
Index BroadcastIndex(const Index& index, const std::vector<int64_t>& sizes, const Loops& loops);

// The index of a view's operand if the view is read at `index`; empty if there is no such form.
std::optional<Index> OperandIndex(const GraphNode& view, const std::vector<int64_t>& operand_sizes,
                                  const Index& index, const Loops& loops);
// The index of a view if its operand is read at `index`; empty if that does not determine it.
std::optional<Index> ViewIndex(const GraphNode& view, const Index& index, const Loops& loops);

// Returns true if an index into a tensor of `sizes` visits every element exactly once as the outer
// (and, with_inner, inner) loops run.
bool Covers(const Index& index, const std::vector<int64_t>& sizes, const Loops& loops,
            bool with_inner);
bool UsesInner(const Index& index);

}  // namespace cudaforge::rows
