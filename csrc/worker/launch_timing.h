// How long a loaded candidate takes.
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

// What a timing runs: launch i on buffers i, with those of its inputs in the caches that `warm[i]`
// names.
struct TimedLaunches {
  std::vector<std::unique_ptr<BoundLaunch>> bound;
  std::vector<LaunchBuffers> buffers;
  std::vector<std::vector<WarmBytes>> warm;
};

// "warm_inputs" of a request: the inputs, by index, that a timing wants warm, of each launch.
Result<std::vector<std::vector<WarmBytes>>> WarmOf(const Json& body,
                                                   const std::vector<LaunchBuffers>& launches);

struct LaunchTimes {
  double median_ns = 0;
  double total_ns = 0;  // of all timed runs
};

// Run i is of launch i, over and over. Before each of them scratch buffers and a part of the
// outputs are overwritten, by `seed`, outside of what is timed. kUnsupported: the kernel does less
// where its outputs and scratch buffers are as its last run left them, or a run took no time.
Result<LaunchTimes> TimeLaunches(Target& target, const TimedLaunches& launches,
                                 const TimingPlan& plan, uint64_t seed);

}  // namespace cudaforge
