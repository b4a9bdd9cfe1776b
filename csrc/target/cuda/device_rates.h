// Measured rates of a GPU, by kernels of this project. Each is the median of up to 15 runs after
// three warm-up runs, each queued behind other work, so that host time is hidden.
//   bandwidth_gb_s      a copy by loads and stores of 16 bytes between two buffers of at least
//                       eight times the L2 (at most a quarter of the free memory each); bytes read
//                       and written, over the time between two events
//   cached_gb_s         the same between buffers of an eighth of the L2 each, which stay in it;
//                       over the time minus launch_us
//   launch_us           microseconds between two events around an empty kernel
//   fp32_tflops         fmaf in eight independent chains a thread, every multiprocessor full; two
//                       operations each
//   bf16_tensor_tflops  products with float32 sums on nonzero numbers, from compute capability 8.0:
//   fp16_tensor_tflops  mma.sync m16n8k16, four chains a warp; on 9.0 wgmma m64n128k16. Devices
//                       with tcgen05 (10.0) can reach more
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
