// The threads of a process that runs a candidate once. Unlike ThreadPool, they read no clock, and
// split ranges by the LaunchRequest.
#pragma once

#include <cstdint>
#include <functional>

#include "target/target.h"
#include "worker/launch.h"

namespace cudaforge {

// One per process. Without a destructor: its threads end with the process.
class Team {
 public:
  // Starts the threads for `launch` in addition to the caller's, where service would use
  // `served_threads`. Each calls `prepare` first. Returns when all have done so.
  static void Start(const LaunchRequest& launch, int served_threads,
                    const std::function<void()>& prepare);

  // For a LaunchContext: splits [0, n) by `split` and runs the parts; returns when all are done.
  // Call from the thread that called Start. System calls: futex, sched_yield, timer_settime and
  // rt_sigreturn (kRandom interrupts its threads). Allocates 16 bytes a part.
  static void ParallelFor(int64_t n, int64_t grain, RangeFn body, void* context);
};

}  // namespace cudaforge
