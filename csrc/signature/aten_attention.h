// PyTorch's kernels for attention that are told whether a backward will read what they return
// beside the result: where none will, their calls are those of aten::scaled_dot_product_attention,
// which every PyTorch has and which exists in float64 too.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "base/status.h"

namespace cudaforge {

// The overload whose calls are the regions of `op`'s: itself, or
// aten::scaled_dot_product_attention.
c10::OperatorHandle RegionOpOf(const c10::OperatorHandle& op);

// The arguments of a call of RegionOpOf(op), and where each is among those of the call of `op`, -1:
// nowhere.
struct RegionArgs {
  std::vector<c10::IValue> values;
  std::vector<int> places;
};

// `args`: all of the schema of `op`, in its order. kUnsupported: attention for a backward, causal
// with other numbers of keys than of queries (the kernels differ in where the diagonal ends), or of
// other than four dimensions.
Result<RegionArgs> RegionArgsOf(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args);

}  // namespace cudaforge
