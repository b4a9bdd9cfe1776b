// Serves one call of a region with its kernel, on PyTorch's tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "dispatch/resolver.h"

namespace cudaforge {

using TensorPointers = c10::SmallVector<const at::Tensor*, 16>;
using OutputTensors = c10::SmallVector<at::Tensor, 4>;

// Launches `winner` on the current stream and counts a hit. If an input is not aligned enough,
// launches the winner of Resolver::Unaligned instead. Returns false if no kernel can take the call,
// and counts a fallback. A failed launch also quarantines the region whose kernel was tried.
// `inputs`: of the region's dtypes, sizes, strides and device. `outputs`: empty; receives one new
// tensor per output. Unspecified after false.
bool Serve(RegionEntry* entry, const Winner& winner, const TensorPointers& inputs,
           OutputTensors* outputs);

}  // namespace cudaforge
