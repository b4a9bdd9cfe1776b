// Which inputs of a region lie in the caches when it is timed.
#pragma once

#include <vector>

#include "signature/device_arch.h"
#include "signature/op_signature.h"

namespace cudaforge {

// Indices of the inputs that a timing reads into the caches before each run, ascending: the
// activations of a small region, which the operator before it has just written. Small: its inputs
// and outputs take at most half of the largest cache. Of a larger region, or where no cache's size
// is known: none. Cold stay, as the rest of a model runs between two uses of them:
//   - filters of convolutions, tables that are looked up, and the right operand of a matrix product
//     where that has two dimensions; through views and copies, too
//   - inputs with fewer dimensions than the input that has most: a bias, the weight of a norm, but
//     class labels as well
std::vector<int> WarmInputs(const OpSignature& region, const DeviceArch& arch);

}  // namespace cudaforge
