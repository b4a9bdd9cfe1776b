// Times a loaded candidate.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "target/target.h"
#include "worker/launch_buffers.h"
#include "worker/timing_plan.h"

namespace cudaforge {

// The launches of a timing: launch i on buffers i, with its inputs `warm[i]` in the caches.
struct TimedLaunches {
  std::vector<std::unique_ptr<BoundLaunch>> bound;
  std::vector<LaunchBuffers> buffers;
  std::vector<std::vector<WarmBytes>> warm;
  bool prepares = false;  // the kernel has prepared operands
};

// Parses "warm_inputs" of a request: for each launch, indices of inputs to be warm.
Result<std::vector<std::vector<WarmBytes>>> WarmOf(const Json& body,
                                                   const std::vector<LaunchBuffers>& launches);

struct LaunchTimes {
  double median_ns = 0;
  double total_ns = 0;    // of all timed runs
  double prepare_ns = 0;  // of preparing the operands once; 0: there are none
};

// Prepares the operands, then runs the launches in rotation. Before each run, outside the timing,
// overwrites scratch buffers and a part of the outputs from `seed`. kUnsupported: the kernel does
// less work if outputs and scratch buffers are unchanged since its last run, or a run took no time.
Result<LaunchTimes> TimeLaunches(Target& target, const TimedLaunches& launches,
                                 const TimingPlan& plan, uint64_t seed);

}  // namespace cudaforge
