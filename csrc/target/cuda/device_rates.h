// Measured rates of a GPU, by kernels of this project. docs/messages.md says how each is measured.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"
#include "target/cuda/cuda_context.h"

namespace cudaforge {

// The kernels, for NVRTC: device_rates.cu, embedded by CMake.
extern const char* const kRatesSource;

// {"bandwidth_gb_s",...,"note"}: unmeasurable rates (no memory) are missing, and "note" says why.
// `cubin`: kRatesSource for the context's device. After an error the context is lost.
Result<Json> MeasureDeviceRates(const CudaContextPtr& context, cu::Stream stream,
                                const std::string& cubin);

}  // namespace cudaforge
