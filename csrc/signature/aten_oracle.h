// Replacements for operators without a float64 kernel in ATen (Float64 in op_facts.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "signature/op_facts.h"

namespace cudaforge {

// Computes a call in float64. `args`: all of the operator's schema, in its order; floating tensors
// may be upcast already. REQUIRES: not Float64::kItself.
at::Tensor RunInFloat64(Float64 how, c10::ArrayRef<c10::IValue> args);

}  // namespace cudaforge
