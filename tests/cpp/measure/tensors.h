// Tensors and arguments for the tests of this folder.
#pragma once

#include <utility>
#include <vector>

#include "signature/op_signature.h"

namespace cudaforge {

inline TensorSpec Tensor(std::vector<int64_t> sizes, DType dtype = DType::kFloat32) {
  TensorSpec spec;
  spec.dtype = dtype;
  spec.strides = ContiguousStrides(sizes);
  spec.sizes = std::move(sizes);
  return spec;
}

inline Json In(int index) { return {{"in", index}}; }

}  // namespace cudaforge
