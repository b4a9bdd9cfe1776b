// How often a candidate is run to be timed.
#pragma once

#include <limits>

namespace cudaforge {

// Runs until `samples` are there, or `least` of them that took `total_ns` together; two runs that
// both took more than `abandon_ns` are enough.
struct TimingPlan {
  int samples = 15;
  int least = 5;
  double total_ns = 50e6;
  double abandon_ns = std::numeric_limits<double>::infinity();
};

}  // namespace cudaforge
