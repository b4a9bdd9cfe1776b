// Mean and variance for norms and for var, std and var_mean.
#pragma once

#include <vector>

#include "generators/rows/lower/graph.h"

namespace cudaforge::rows {

// The mean over `dims` (kept with size 1).
int MeanOver(Graph& g, int x, const std::vector<int>& dims);

struct Moments {
  int mean;      // infinite if all infinities of the row have one sign, as in ATen
  int variance;  // sum of squared distances over max(count - ddof, 0)
  int distance;  // of each element from the mean
};

// The corrected two-pass algorithm (Chan, Golub, LeVeque: Algorithms for computing the sample
// variance, 1983). The second sweep also sums the distances, to correct the rounding of the mean.
// So a constant row has a variance of zero, or of rounding errors of second order. A sum of squares
// that overflows gives an infinite variance.
Moments MomentsOver(Graph& g, int x, const std::vector<int>& dims, double ddof);

}  // namespace cudaforge::rows
