// Inputs that must be consistent with other inputs, computed by ATen on their device.
#pragma once

#include <span>

#include "base/status.h"
#include "signature/aten_pch.h"
#include "signature/op_signature.h"

namespace cudaforge {

// Overwrites derived inputs: the mean and reciprocal deviation for a normalisation's backward,
// softmax's output, the indices of a pooling's maxima. `inputs`: one per signature input, of its
// sizes and strides, on one device. Skips derivations whose sources are not inputs. Works in blocks
// of about 200 MiB, or one image of a pooling. On a GPU, asynchronous on ATen's current stream.
// kInvalidArgument: another number of inputs. kNoMemory. kUnsupported: ATen refuses the call.
Status DeriveInputs(const OpSignature& signature, std::span<at::Tensor> inputs);

}  // namespace cudaforge
