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
// `ns`, the nanoseconds of one call. docs/messages.md lists them; unknown ones are left out. A
// profile has cold caches; a timing has the warm inputs of warm_inputs.h.
Json DerivedFacts(const Json& profile, const Json& facts, const OpSignature& signature, double ns);

}  // namespace cudaforge
