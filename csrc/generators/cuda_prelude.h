// Device code that every generated CUDA kernel starts with: storage types, vector access, math, and
// the group reductions and scans that the mappings are made of. No headers are included, so NVRTC
// needs none.
#pragma once

#include <string_view>

namespace cudaforge::rows {

std::string_view CudaPrelude();
// Its last part: what groups of threads do together.
std::string_view CudaGroupPrelude();

}  // namespace cudaforge::rows
