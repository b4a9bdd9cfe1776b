// The CUDA functions that serving kernels needs.
#pragma once

#include <c10/core/Device.h>

#include "base/status.h"

namespace cudaforge {

// PyTorch's current stream on a CUDA device: a CUstream.
void* CurrentStream(c10::Device device);

// Returns true if a CUDA graph is capturing that stream. False for a CPU, and without a driver.
// Thread-safe.
bool IsCapturing(c10::Device device);

// Makes the device's primary context current in this thread if no context is. PyTorch does this
// only at a thread's first runtime call. kUnavailable without a driver.
Status BindPrimaryContext(int device_index);

}  // namespace cudaforge
