// What a GPU measurably does, by kernels of this project's own:
//   bandwidth_gb_s      a copy by loads and stores of 16 bytes between two buffers of at least
//                       eight times the L2 (at most a quarter of the free memory each); bytes read
//                       and written, over the time between two events
//   fp32_tflops         fmaf in eight independent chains a thread, every multiprocessor full; two
//                       operations each
//   bf16_tensor_tflops  mma.sync m16n8k16 with float32 sums, four chains a warp, on numbers that
//   fp16_tensor_tflops  are not zero; for compute capability 8.0 and later. Where wgmma or tcgen05
//                       exist (9.0, 10.0), they reach more than this
// Each is the median of up to 15 runs after three that are not counted.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"
#include "target/cuda/cuda_context.h"

namespace cudaforge {

// The kernels, for NVRTC.
extern const char* const kRatesSource;

// {"bandwidth_gb_s",...,"note"}: what could not be measured (no memory) is left out, and "note"
// says why. `cubin`: kRatesSource for the context's device. An error leaves the context lost.
Result<Json> MeasureDeviceRates(const CudaContextPtr& context, cu::Stream stream,
                                const std::string& cubin);

}  // namespace cudaforge
