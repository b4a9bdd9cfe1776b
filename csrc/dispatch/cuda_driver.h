// What serving kernels asks of CUDA.
#pragma once

#include <c10/core/Device.h>

#include "base/status.h"

namespace cudaforge {

// PyTorch's current stream on a CUDA device: a CUstream.
void* CurrentStream(c10::Device device);

// Whether work on it is being recorded into a CUDA graph. False for a CPU, and without a driver.
// Thread-safe.
bool IsCapturing(c10::Device device);

// Makes the device's primary context current in this thread when no context is. PyTorch leaves a
// fresh thread without one until its first runtime call. kUnavailable without a driver.
Status BindPrimaryContext(int device_index);

}  // namespace cudaforge
