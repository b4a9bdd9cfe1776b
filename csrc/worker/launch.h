// A run of a loaded candidate on memory that the verifier owns and the worker maps.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernel/verdict.h"

namespace cudaforge {

// A buffer begins `offset` bytes into a mapping (CandidateRunner::Map).
struct Placed {
  int mapping = 0;
  int64_t offset = 0;
};

// How the range of a CPU launch is split into calls. A cuda launch has no range: any of these.
enum class RangeSplit {
  kServed,  // as in service: at most a part a thread, of at least the launch's grain
  kWhole,   // one call on one thread
  kItems,   // one call an item, on one thread, in a random order. Of a range of more than 64 Ki
            // items: some 4,096 single items, and the rest in parts of odd sizes
  kRandom,  // random parts on two or more threads with random delays: they begin anywhere, at odd
            // items, at multiples of 2 to 64, or where the parts of some machine's threads do
  kApart,   // as many parts as are affordable, one after the other, in a random order. Two that
            // change one byte of an output or a scratch buffer race, where they use no atomics
};
// "served", "whole", "items", "random", "apart".
std::string_view SplitName(RangeSplit split);
// kInvalidArgument: no such name.
Result<RangeSplit> ParseSplit(std::string_view name);

// One entry for each input, output and scratch buffer. Outputs and scratch lie in writable
// mappings; inputs as the verifier wants them. Contents are the verifier's business.
struct LaunchRequest {
  std::vector<Placed> inputs, outputs, scratch;
  RangeSplit split = RangeSplit::kServed;
  uint64_t seed = 0;  // of kItems, kRandom and kApart; on a GPU an odd one is two runs at once
  int threads = 0;    // kServed: cut for so many; 0: as many as this machine's pool has
};

// A kernel that the worker holds.
struct LoadedKernel {
  std::vector<int64_t> scratch_bytes;  // of each scratch buffer, 256-byte aligned
  Verdict verdict;  // accepted: it is loaded; else refused or launch_error, and nothing is loaded
};

}  // namespace cudaforge
