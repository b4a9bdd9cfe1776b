// The text of one kernel from a plan.
#pragma once

#include <string>
#include <vector>

#include "generators/emit_cuda_plan.h"

namespace cudaforge::rows {

struct CudaKernelText {
  std::string text;                // one extern "C" __global__ function
  std::vector<BufferRef> buffers;  // its parameters, in order
  // Bytes that the data pointer of each of `buffers` must be a multiple of.
  std::vector<int64_t> alignment;
};

// Deterministic. The text needs CudaPrelude() before it.
CudaKernelText WriteCudaKernel(const CudaPlan& plan, const std::string& name);

}  // namespace cudaforge::rows
