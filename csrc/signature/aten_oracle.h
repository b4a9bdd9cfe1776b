// Operators that ATen has no float64 kernel of, as plain operators (Float64 in op_facts.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "signature/op_facts.h"

namespace cudaforge {

// What a call comes to in float64. `args`: all of the operator's schema, in its order; floating
// tensors may have been upcast. REQUIRES: not Float64::kItself.
at::Tensor RunInFloat64(Float64 how, c10::ArrayRef<c10::IValue> args);

}  // namespace cudaforge
