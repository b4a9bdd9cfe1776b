// The text of one kernel from a plan.
#pragma once

#include <string>
#include <vector>

#include "generators/rows/cuda/plan.h"

namespace cudaforge::rows {

struct CudaKernelText {
  std::string text;                // one extern "C" __global__ function
  std::vector<BufferRef> buffers;  // its parameters, in order
};

// Deterministic. Needs CudaPrelude() before the text.
CudaKernelText WriteCudaKernel(const CudaPlan& plan, const std::string& name);

}  // namespace cudaforge::rows
