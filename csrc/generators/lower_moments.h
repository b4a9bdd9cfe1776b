// Mean and variance, as norms and the var, std and var_mean family take them.
#pragma once

#include <vector>

#include "generators/lower_graph.h"

namespace cudaforge::rows {

// Sum over `dims` (kept as dimensions of size 1) over their count.
int MeanOver(Graph& g, int x, const std::vector<int>& dims);

struct Moments {
  int mean;      // infinite where all infinities of the row have one sign, as ATen's mean is
  int variance;  // the sum of the squared distances over max(count - ddof, 0)
  int distance;  // of each element from the mean
};

// By the corrected two-pass algorithm (Chan, Golub, LeVeque: Algorithms for computing the sample
// variance, 1983): the second sweep also sums the plain distances, which the rounded mean leaves
// off zero, and takes them out. So a row of one value has distances and a variance of zero, or of
// its rounding's rounding. A sum of squares that overflows gives an infinite variance.
Moments MomentsOver(Graph& g, int x, const std::vector<int>& dims, double ddof);

}  // namespace cudaforge::rows
