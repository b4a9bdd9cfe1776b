// Target's shared memory on CUDA devices, by the driver's virtual memory management.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "target/cuda/cuda_context.h"
#include "target/device_buffer.h"
#include "target/shared_memory.h"

namespace cudaforge {

// See Target::granule, Share and Map.
int64_t CudaGranule(const CudaContext& context);
Result<SharedMemory> ShareCudaMemory(const CudaContextPtr& context, int64_t bytes);
Result<DeviceBuffer> MapCudaMemory(const CudaContextPtr& context, int fd, int64_t bytes,
                                   bool writable, int64_t shift);

}  // namespace cudaforge
