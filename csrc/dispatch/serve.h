// One call of a region's kernel on PyTorch's tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "dispatch/resolver.h"

namespace cudaforge {

using TensorPointers = c10::SmallVector<const at::Tensor*, 16>;
using OutputTensors = c10::SmallVector<at::Tensor, 4>;

// Launches `winner` on the current stream and counts a hit. Where the inputs are less aligned than
// `winner` needs, the winner of the same region with unaligned inputs is launched in its place, if
// there is one. False: no kernel can take this call, which is counted as a fallback; a failed
// launch also quarantines the region. Counted and quarantined is the region whose kernel was tried.
// `inputs`: of the region's dtypes, sizes, strides and device. `outputs`: empty; new tensors are
// put there, one for each of the region's. What it holds is unspecified when false.
bool Serve(RegionEntry* entry, const Winner& winner, const TensorPointers& inputs,
           OutputTensors* outputs);

}  // namespace cudaforge
