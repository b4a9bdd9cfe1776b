// The few calls that the region operator makes to the CUDA driver, found in libcuda.so.1 at run
// time.
#pragma once

#include "base/status.h"

namespace cudaforge {

// Whether work on `stream` (a CUstream) is being recorded into a graph. False without a driver.
// Thread-safe.
bool IsCapturing(void* stream);

// Makes the device's primary context current in this thread when no context is. PyTorch leaves a
// fresh thread without one until its first runtime call.
Status BindPrimaryContext(int device_index);

}  // namespace cudaforge
