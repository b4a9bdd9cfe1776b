// PyTorch's kernels for attention as calls of aten::scaled_dot_product_attention (RegionOpName).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include "base/status.h"
#include "signature/op_signature.h"

namespace cudaforge {

// The overload whose calls are the regions of eager calls of `op`. Of kernels that are told whether
// a backward will read what they return beside the result: that of RegionOpName; else `op`.
c10::OperatorHandle RegionOpOf(const c10::OperatorHandle& op);

// Whether such a kernel is told that a backward will. `args`: all of its schema, in its order.
bool IsForBackward(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> args);

// A node of `signature`. One that calls such a kernel and lists its result alone: as the call whose
// kernel it is; any other: as it is. kUnsupported: a debug mask, attention that is causal with
// other numbers of keys than of queries (the kernels differ in where the diagonal ends), or of
// other than four dimensions. Other errors are BindAtenArgs'.
Result<Node> AsRegionCall(const OpSignature& signature, const Node& node);

}  // namespace cudaforge
