// Inputs that must be consistent with other inputs, computed by ATen where they lie.
#pragma once

#include <span>

#include "base/status.h"
#include "signature/aten_pch.h"
#include "signature/op_signature.h"

namespace cudaforge {

// Overwrites the derived inputs among `inputs` (one a signature's input, of its sizes and strides,
// all on one device, any): the mean and the reciprocal deviation that a normalisation's backward
// reads, softmax's output, the places of a pooling's maxima. By blocks: takes at most some 200 MiB
// beside the inputs, but for one image of a pooling. A derivation whose sources are not themselves
// inputs of the region is left as it was drawn. On a GPU on ATen's current stream, without waiting.
// kInvalidArgument: another number of inputs. kNoMemory. kUnsupported: ATen refuses the call.
Status DeriveInputs(const OpSignature& signature, std::span<at::Tensor> inputs);

}  // namespace cudaforge
