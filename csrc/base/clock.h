// The clock for durations.
#pragma once

#include <chrono>

namespace cudaforge {

// Seconds of the monotonic clock, from an unspecified start.
inline double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Adds its lifetime in seconds to `seconds`, which must outlive it.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() { *seconds_ += SteadySeconds() - start_; }

 private:
  double* const seconds_;
  const double start_ = SteadySeconds();
};

}  // namespace cudaforge
