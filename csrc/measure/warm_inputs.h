// Which inputs of a region lie in the caches when it runs.
#pragma once

#include <vector>

#include "signature/device_arch.h"
#include "signature/op_signature.h"

namespace cudaforge {

// Indices of the inputs that a timing reads into the caches before each run, ascending. Of a region
// whose inputs and outputs take at most half of the largest cache: its activations, which the
// operator before it has just written. Its weights stay cold, as the rest of a model runs between
// two uses of them: filters, right operands of products that are matrices, tables that are looked
// up, and inputs with fewer dimensions than the input that has most (a bias, the weight of a norm).
// None of a larger region.
std::vector<int> WarmInputs(const OpSignature& region, const DeviceArch& arch);

}  // namespace cudaforge
