// Which inputs of a region are in the caches when it is timed.
#pragma once

#include <vector>

#include "signature/device_arch.h"
#include "signature/op_signature.h"

namespace cudaforge {

// Returns the ascending indices of inputs to be warm: the activations of a small region, as the
// previous operator has just written them. Small: inputs and outputs fit into half of the largest
// cache. Empty for larger regions, or if no cache size is known. These stay cold, because the rest
// of a model runs between two uses:
// - filters of convolutions, lookup tables, and two-dimensional right operands of matrix products,
//   also through views and copies
// - inputs with fewer dimensions than the largest: biases, norms' weights, class labels
std::vector<int> WarmInputs(const OpSignature& region, const DeviceArch& arch);

}  // namespace cudaforge
