// How a CPU launch's range is cut into calls.
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

// Parts, none of them empty, that cover each item of [0, range) once, in the order in which they
// are to be begun. `threads`: those that share the work. kServed gives the parts of
// ThreadPool::Run, in order; the others an order by `seed`. At most 64 Ki parts (kItems), `threads`
// (kApart), 16 a thread or 128 (kRandom). REQUIRES: range <= 2^62.
std::vector<RangePart> CutRange(RangeSplit split, int64_t range, int64_t grain, int threads,
                                uint64_t seed);

}  // namespace cudaforge
