// Device code at the top of every generated CUDA kernel: storage types, vector access, math, and
// reductions and scans of thread groups. Includes no headers, so NVRTC needs none.
#pragma once

#include <string_view>

namespace cudaforge::rows {

std::string_view CudaPrelude();
// Its last part: operations of thread groups.
std::string_view CudaGroupPrelude();

}  // namespace cudaforge::rows
