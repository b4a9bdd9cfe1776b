// Inputs that must be consistent with other inputs, computed by ATen's matching forward call: the
// mean and the reciprocal deviation that a normalisation's backward reads, softmax's output, the
// places of a pooling's maxima.
#pragma once

#include "base/status.h"
#include "signature/op_signature.h"
#include "worker/input_set.h"

namespace cudaforge {

// Overwrites the derived inputs of `set`. Runs on the CPU. A derivation whose sources are not
// themselves inputs of the region is left as MakeInputs made it. kUnsupported when ATen refuses the
// forward call.
Status DeriveInputs(const OpSignature& signature, InputSet* set);

}  // namespace cudaforge
