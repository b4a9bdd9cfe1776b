// cudaforge::region_v1(Tensor[] inputs, int id, str signature) -> Tensor[]: the operator that a
// compiled graph calls in place of a region. `id` is RegionId of the signature's key; `signature`
// its canonical JSON, read on first sight only. CPU and CUDA: launches the winner, or runs the
// region by ATen. Meta: outputs from the signature alone. Declares no mutation; not differentiable
// (an error under grad mode when an input requires grad). Thread-safe.
//
// Increase the version in the name with every change of the schema: code in PyTorch's caches calls
// the operator by its name.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace cudaforge {

// The operator's handle. Naming it also keeps its registration when linked from a static library.
c10::OperatorHandle RegionOperator();

}  // namespace cudaforge
