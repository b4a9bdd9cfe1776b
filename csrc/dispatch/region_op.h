// The operator that a compiled graph calls in place of a region:
//   cudaforge::region_v1(Tensor[] inputs, int id, str signature) -> Tensor[]
// `id` is RegionId of the signature's key. `signature` is its canonical JSON, parsed only when
// first seen. CPU and CUDA: launches the winner, or runs the region by ATen. Meta: makes the
// outputs from the signature. Not differentiable: an error if grad mode is on and an input requires
// grad. Thread-safe.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace cudaforge {

// Returns the operator's handle. A reference to this function keeps the registration in a static
// link. Increase the version in the operator's name with every change of the schema: compiled code
// in PyTorch's caches calls it by name.
c10::OperatorHandle RegionOperator();

}  // namespace cudaforge
