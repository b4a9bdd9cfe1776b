// Finds parts of one launch that write the same memory. For a process that runs a candidate once.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "target/target.h"
#include "worker/launch.h"
#include "worker/launch_buffers.h"

namespace cudaforge {

// One a process. Its parts run one after the other on one thread; after each, outputs and scratch
// buffers are compared with what they were. Where two parts of a launch changed the same byte, they
// would race in service. Writing what is there already is not seen.
class RaceWatch {
 public:
  // Takes two bytes for each byte of outputs and scratch buffers. Makes system calls.
  // `uses_atomics`: the candidate's text has atomic operations, so that two parts may change a byte
  // by them. Then the second part is taken back and run again by single steps (x86-64; elsewhere
  // nothing is told), up to a number of steps: an ordinary instruction that changes the byte is a
  // race.
  static void Start(const LaunchBuffers& buffers, uint64_t seed, bool uses_atomics);
  // Of a LaunchContext. From the thread that called Start. System calls: rt_sigreturn.
  static void ParallelFor(int64_t n, int64_t grain, RangeFn body, void* context);
  // kUnsupported: the first race, for the candidate's author.
  static Status Found();
};

}  // namespace cudaforge
