// Finds parts of one launch that write the same memory. For a process that runs a candidate once.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "target/target.h"
#include "worker/launch.h"
#include "worker/launch_buffers.h"

namespace cudaforge {

// One per process. Runs the parts one after the other on one thread, and compares outputs and
// scratch buffers before and after each. Two parts of a launch that change the same byte would race
// in service. Writes that do not change the value are not detected.
class RaceWatch {
 public:
  // Needs two bytes for each byte of outputs and scratch buffers. Makes system calls.
  // `uses_atomics`: the candidate's text has atomic operations, which may change a byte in two
  // parts. Then the second part is undone and repeated in single steps (only x86-64), up to a
  // number of steps. A non-atomic instruction that changes the byte is a race.
  static void Start(const LaunchBuffers& buffers, uint64_t seed, bool uses_atomics);
  // For a LaunchContext. Call from the thread that called Start. System calls: rt_sigreturn.
  static void ParallelFor(int64_t n, int64_t grain, RangeFn body, void* context);
  // kUnsupported: describes the first race, for the candidate's author.
  static Status Found();
};

}  // namespace cudaforge
