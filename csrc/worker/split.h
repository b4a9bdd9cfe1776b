// Splits a CPU launch's range into calls.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/launch.h"

namespace cudaforge {

// One call for [begin, end).
struct RangePart {
  int64_t begin = 0;
  int64_t end = 0;
};

// Returns non-empty parts that cover each item of [0, range) once, in the order to start them.
// `threads`: the number that share the work. kServed: the parts of ThreadPool::Run, in order.
// Others: ordered by `seed`; at most 64 Ki parts (kItems), `threads` (kApart), 16 a thread or 128
// (kRandom). REQUIRES: range <= 2^62.
std::vector<RangePart> CutRange(RangeSplit split, int64_t range, int64_t grain, int threads,
                                uint64_t seed);

}  // namespace cudaforge
