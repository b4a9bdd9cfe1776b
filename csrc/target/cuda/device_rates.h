// What a GPU measurably does, by kernels of this project's own:
//   bandwidth_gb_s      a copy by loads and stores of 16 bytes between two buffers of at least
//                       eight times the L2 (at most a quarter of the free memory each); bytes read
//                       and written, over the time between two events
//   cached_gb_s         the same between buffers of an eighth of the L2 each, which stay in it; of
//                       the time less that of launch_us
//   launch_us           microseconds between two events around a kernel that does nothing
//   fp32_tflops         fmaf in eight independent chains a thread, every multiprocessor full; two
//                       operations each
//   bf16_tensor_tflops  products with float32 sums on numbers that are not zero, from compute
//   fp16_tensor_tflops  capability 8.0 on: mma.sync m16n8k16, four chains a warp; on 9.0 wgmma
//                       m64n128k16. Where tcgen05 exists (10.0), it reaches more than this
// Each is the median of up to 15 runs after three that are not counted, each run behind other work,
// so that the host's own time does not show.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"
#include "target/cuda/cuda_context.h"

namespace cudaforge {

// The kernels, for NVRTC: device_rates.cu, which CMake makes part of the program.
extern const char* const kRatesSource;

// {"bandwidth_gb_s",...,"note"}: what could not be measured (no memory) is left out, and "note"
// says why. `cubin`: kRatesSource for the context's device. An error leaves the context lost.
Result<Json> MeasureDeviceRates(const CudaContextPtr& context, cu::Stream stream,
                                const std::string& cubin);

}  // namespace cudaforge
