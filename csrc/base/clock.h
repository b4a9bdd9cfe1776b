// The clock that durations are taken with.
#pragma once

#include <chrono>

namespace cudaforge {

// Seconds of the monotonic clock, from an unknown beginning.
inline double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace cudaforge
