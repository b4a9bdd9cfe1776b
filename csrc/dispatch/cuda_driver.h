// What serving kernels asks of the CUDA driver.
#pragma once

#include "base/status.h"

namespace cudaforge {

// Whether work on `stream` (a CUstream) is being recorded into a graph. False without a driver.
// Thread-safe.
bool IsCapturing(void* stream);

// Makes the device's primary context current in this thread when no context is. PyTorch leaves a
// fresh thread without one until its first runtime call. kUnavailable without a driver.
Status BindPrimaryContext(int device_index);

}  // namespace cudaforge
