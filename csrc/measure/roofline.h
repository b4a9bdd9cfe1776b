// What a region must do at the least, and how near to that a measured candidate comes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/json.h"
#include "signature/op_signature.h"

namespace cudaforge {

struct RegionWork {
  // Every byte that the region reads or writes, once: inputs (expanded elements and shared storage
  // once, inputs that nothing uses not at all, of tables that are only looked up in no more than is
  // taken out) and outputs. What stays between the nodes is not counted.
  int64_t needed_bytes = 0;
  // Operations, by the rate of Target::Facts that bounds them; float32 products on a GPU by
  // "fp32_product_tflops", a third of float16's on tensor cores where that is more. Matrix
  // products, convolutions and attention exactly, two for each multiply-add (the causal half alone
  // where the call says so); of any other node one for each element of its largest tensor; of views
  // none.
  std::map<std::string, double> flops;
};

RegionWork WorkOf(const OpSignature& signature);

// The least microseconds that one call can take on a device of these `facts` (Target::Facts): the
// larger of its bytes, those that fit into the L2 at the rate of copies in it, and its operations
// at the fastest way that their precision allows, plus a launch. What is not known takes no time.
double FloorUs(const OpSignature& signature, const Json& facts);

// `profile` (Target::Profile) with the shares of elapsed time ("..._elapsed", percent) as shares of
// `ns`, the nanoseconds of one call. The profiled range holds more than the kernels: the launches
// and the wait for their end, some 50 us, so that what is counted there is of that time.
// gpu__time_duration.sum, which is that time, is left out. Unchanged where it was not counted.
Json AtMeasuredTime(Json profile, double ns);

// From `profile` (Target::Profile), `facts` (Target::Facts; either may be empty), and `ns`, the
// nanoseconds of one call. A profile is taken with cold caches; a call is timed with the inputs
// warm that WarmInputs (warm_inputs.h) names:
//   needed_bytes, needed_flops (of every rate together)   see RegionWork
//   moved_bytes        to and from memory, as counted: cuda dram__bytes...; cpu 64 a cache_miss
//   moved_over_needed  1 is the best; below 1 where results stay in a cache
//   achieved_gb_s      the larger of the two over the time
//   of_bandwidth       achieved_gb_s over the measured bandwidth
//   of_peak_flops      the time that the operations alone take at the measured peak, over the time
//   floor_us           the least time: the bytes at full bandwidth or the operations at peak
//   of_floor           floor_us over the time: 1 is the best that this device can do with cold
//                      caches. It, of_bandwidth and achieved_gb_s may be higher with warm inputs
//   limiter            "memory" or "compute": the one that is used to at least 60 per cent, the
//                      more used of both (compute: the operations, or the slots that issued an
//                      instruction); "latency" where neither is
// What cannot be known is left out.
Json DerivedFacts(const Json& profile, const Json& facts, const OpSignature& signature, double ns);

}  // namespace cudaforge
