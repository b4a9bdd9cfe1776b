// Maps PyTorch's attention kernels to calls of aten::scaled_dot_product_attention (RegionOpName).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include "base/status.h"
#include "signature/op_signature.h"

namespace cudaforge {

// Returns the overload that regions of eager calls of `op` use. For kernels with an argument that
// requests the outputs for a backward: that of RegionOpName; else `op`.
c10::OperatorHandle RegionOpOf(const c10::OperatorHandle& op);

// Returns true if the call requests outputs for a backward. `args`: all of the schema, in its
// order.
bool IsForBackward(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> args);

// Converts a call of an attention kernel that lists only the result to the call of
// RegionOpName. Returns any other node unchanged. kUnsupported: a debug mask, causal attention with
// different numbers of keys and queries (kernels differ there), or not four dimensions. Other
// errors: BindAtenArgs'.
Result<Node> AsRegionCall(const OpSignature& signature, const Node& node);

}  // namespace cudaforge
