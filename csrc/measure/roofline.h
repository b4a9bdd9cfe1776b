// What the metrics of a kernel imply.
#pragma once

#include "base/json.h"
#include "signature/op_signature.h"

namespace cudaforge {

// {"needed_bytes", "floor_us", "of_floor", "limiter", ...}; what cannot be derived is left out.
// `ns` of 0: no time is known.
Json DerivedFacts(const Json& profile, const Json& facts, const OpSignature& signature, double ns);

}  // namespace cudaforge
