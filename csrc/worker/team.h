// The threads of a process that runs a candidate once. Unlike ThreadPool they read no clock, and
// split ranges as a LaunchRequest asks.
#pragma once

#include <cstdint>
#include <functional>

#include "target/target.h"
#include "worker/launch.h"

namespace cudaforge {

// One a process. It has no destructor: its threads end with the process.
class Team {
 public:
  // Starts the threads that `launch` needs beside the caller's, where service would use
  // `served_threads`. Each calls `prepare` first; returns when all have.
  static void Start(const LaunchRequest& launch, int served_threads,
                    const std::function<void()>& prepare);

  // Of a LaunchContext: cuts [0, n) by `split` and runs the parts; returns when all are done. From
  // the thread that called Start. System calls: futex, and sched_yield, timer_settime
  // and rt_sigreturn (kRandom interrupts its threads); it allocates 16 bytes a part.
  static void ParallelFor(int64_t n, int64_t grain, RangeFn body, void* context);
};

}  // namespace cudaforge
