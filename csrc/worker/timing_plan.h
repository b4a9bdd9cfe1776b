// The number of runs to time a candidate.
#pragma once

#include <limits>

namespace cudaforge {

// Stops after `samples` runs, or after `least` runs that took `total_ns` together. Two runs that
// both took more than `abandon_ns` are enough.
struct TimingPlan {
  int samples = 15;
  int least = 5;
  double total_ns = 50e6;
  double abandon_ns = std::numeric_limits<double>::infinity();
};

}  // namespace cudaforge
