// Tensors for the tests of this folder.
#pragma once

#include <utility>
#include <vector>

#include "signature/op_signature.h"

namespace cudaforge {

inline TensorSpec Spec(DType dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides = {}) {
  TensorSpec spec;
  spec.dtype = dtype;
  spec.strides = strides.empty() ? ContiguousStrides(sizes) : std::move(strides);
  spec.sizes = std::move(sizes);
  spec.alignment = DTypeSize(dtype);
  return spec;
}

}  // namespace cudaforge
