// The clock that durations are taken with.
#pragma once

#include <chrono>

namespace cudaforge {

// Seconds of the monotonic clock, from an unknown beginning.
inline double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Adds the seconds from its making to its end. `seconds` must outlive it.
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
