// The least work of a region, and how close a measured candidate comes to it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/json.h"
#include "signature/op_signature.h"

namespace cudaforge {

struct RegionWork {
  // Bytes that must be read or written, each counted once: inputs and outputs. Expanded elements
  // and shared storage count once, unused inputs not at all. Lookups count as many rows as they
  // return. Intermediate results are not counted.
  int64_t needed_bytes = 0;
  // Operations, by the rate of Target::Facts that bounds them. float32 products on a GPU: by
  // "fp32_product_tflops" (a third of float16's on tensor cores, if that is more). Matrix products,
  // convolutions and attention count exactly, two for each multiply-add (half if causal). Other
  // nodes: one for each element of the largest tensor; views: none.
  std::map<std::string, double> flops;
};

RegionWork WorkOf(const OpSignature& signature);

// The least microseconds of one call on a device with these `facts` (Target::Facts): the larger of
// memory time and compute time, plus a launch. Bytes that fit into the L2 count at its copy rate,
// operations at the fastest way for their precision. Unknown rates count as no time.
double FloorUs(const OpSignature& signature, const Json& facts);

// Rescales the "..._elapsed" metrics (percent of elapsed time) of `profile` to `ns`, the
// nanoseconds of one call. The profiled range also has launches and synchronisation, some 50 us.
// Removes gpu__time_duration.sum, the range's duration. Returns `profile` unchanged if that was not
// measured.
Json AtMeasuredTime(Json profile, double ns);

// Derives facts from `profile` (Target::Profile), `facts` (Target::Facts; either may be empty) and
// `ns`, the nanoseconds of one call. A profile has cold caches; a timing has the warm inputs of
// warm_inputs.h. Unknown ones are left out:
//   needed_bytes, needed_flops (of every rate together)   see RegionWork
//   moved_bytes        to and from memory, as counted: cuda dram__bytes...; cpu 64 a cache_miss
//   moved_over_needed  1 is the best; below 1 if results stay in a cache
//   achieved_gb_s      the larger of the two over the time
//   of_bandwidth       achieved_gb_s over the measured bandwidth
//   of_peak_flops      the time of the operations at the measured peak, over the time
//   floor_us           the least time: the bytes at full bandwidth or the operations at peak
//   of_floor           floor_us over the time: 1 is the limit of this device with cold caches.
//                      It, of_bandwidth and achieved_gb_s may be higher with warm inputs
//   limiter            "memory" or "compute": the one with the higher use, if that is at least
//                      60 per cent (compute: the operations, or the issue slots); else "latency"
Json DerivedFacts(const Json& profile, const Json& facts, const OpSignature& signature, double ns);

}  // namespace cudaforge
