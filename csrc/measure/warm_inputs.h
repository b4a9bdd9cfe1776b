// Which inputs of a region are in the caches when it is timed.
#pragma once

#include <vector>

#include "signature/device_arch.h"
#include "signature/op_signature.h"

namespace cudaforge {

// Returns the ascending indices of inputs to be warm: the activations of a small region, which the
// previous operator has just written. Small: inputs and outputs fit into half of the largest cache.
// Empty for larger regions, or if no cache size is known. Inputs that the rest of a model evicts
// stay cold: filters, lookup tables and two-dimensional right operands of products (also through
// views and copies); inputs with fewer dimensions than the largest (biases, norms' weights,
// labels).
std::vector<int> WarmInputs(const OpSignature& region, const DeviceArch& arch);

}  // namespace cudaforge
