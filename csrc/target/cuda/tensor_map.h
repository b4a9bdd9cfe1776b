// Encodes tensor maps for the CUDA driver. TMA exists since sm_90.
#pragma once

#include "base/status.h"
#include "kernel/tensor_map.h"
#include "target/cuda/driver_api.h"

namespace cudaforge {

// Encodes a map for the current device, with a placeholder for the buffer's address: each launch
// replaces it in a copy (TensorMapReplaceAddress). kUnavailable: the driver is too old.
// kInvalidArgument: the driver refuses the numbers.
Result<cu::TensorMap> EncodeTensorMap(const cu::DriverApi& api, const EvaluatedTensorMap& map);

}  // namespace cudaforge
