// What fake tensors see of cudaforge::region: outputs made from the signature alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace cudaforge {

// Meta tensors with the sizes, strides and dtypes of the signature's outputs. Parses a signature
// once per id. kInvalidArgument: malformed, another number of inputs, or an id that is not its
// signature's. Thread-safe.
Result<std::vector<at::Tensor>> MetaOutputs(size_t input_count, int64_t id,
                                            const std::string& signature);

}  // namespace cudaforge
