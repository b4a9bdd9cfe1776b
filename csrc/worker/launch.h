// A run of a loaded candidate, on memory that the verifier owns and the worker maps.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernel/verdict.h"

namespace cudaforge {

// A buffer that begins `offset` bytes into a mapping (CandidateRunner::Map).
struct Placed {
  int mapping = 0;
  int64_t offset = 0;
};

// How the range of a CPU launch is split into calls. A cuda launch has no range and ignores it.
enum class RangeSplit {
  kServed,  // as in service: at most one part a thread, of at least the launch's grain
  kWhole,   // one call on one thread
  kItems,   // one call an item, on one thread, in a random order. Above 64 Ki items: some 4,096
            // single items, and the rest in parts of odd sizes
  kRandom,  // random parts on two or more threads with random delays. They begin at odd items, at
            // multiples of 2 to 64, or where another machine's parts would
  kApart,   // as many parts as affordable, one after the other, in a random order. Two parts that
            // change the same byte without atomics are a race
};
// "served", "whole", "items", "random", "apart".
std::string_view SplitName(RangeSplit split);
// kInvalidArgument: unknown name.
Result<RangeSplit> ParseSplit(std::string_view name);

// One entry for each input, output and scratch buffer; prepared buffers are the last of `scratch`.
// Outputs and scratch are in writable mappings; the verifier chooses for inputs, and for prepared
// buffers that are only read. The verifier also writes the contents.
struct LaunchRequest {
  std::vector<Placed> inputs, outputs, scratch;
  RangeSplit split = RangeSplit::kServed;
  uint64_t seed = 0;  // for kItems, kRandom and kApart; an odd one on a GPU is two concurrent runs
  int threads = 0;    // kServed: number of threads to split for; 0: as many as this machine's pool
                      // has
  bool prepare = false;  // fills the prepared buffers (LaunchPlan::prepare), and runs nothing else
};

// The kernel that the worker has loaded.
struct LoadedKernel {
  std::vector<int64_t> scratch_bytes;  // of each scratch and prepared buffer, 256-byte aligned
  Verdict verdict;                     // accepted: it is loaded; else refused or launch_error
};

}  // namespace cudaforge
