// The verifier's own CUDA kernels: the texts under csrc/verify/device (each .cu file and what it
// includes), compiled as one program by NVRTC for the device's exact architecture.
//
// To add kernels, add a file device/NAME.cu of `extern "C" __global__` wrappers. It may include
// "verify/device/OTHER.h"; CMake makes both part of the program. Code that the CPU path uses as
// well goes into such a header (verify/device/portable.h).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/embedded_text.h"
#include "base/status.h"
#include "target/cuda/cuda_context.h"

namespace cudaforge {

// The texts of csrc/verify/device, sorted by path ("device/portable.h").
std::span<const EmbeddedText> OwnKernelTexts();

// The .cu texts in the order of their paths, each include of a text of the folder replaced by that
// text the first time and dropped after that. kInternal where such an include names no text.
Result<std::string> OwnKernelSource();

// In the primary context, which libtorch uses too, on the legacy default stream, which is ATen's:
// launches run after the ATen calls before them and before those after them. Thread-safe.
class OwnKernels {
 public:
  // Compiles once per process and architecture (about a second). `search_paths`: where NVRTC may
  // be, see target/cuda/search_paths.h. kUnavailable without a driver, a device or NVRTC.
  static Result<std::unique_ptr<OwnKernels>> Create(int device_index,
                                                    const std::vector<std::string>& search_paths);
  OwnKernels(const OwnKernels&) = delete;
  OwnKernels& operator=(const OwnKernels&) = delete;

  // Starts `kernel`. `params`: the addresses of its arguments, in order, as for cuLaunchKernel;
  // they are read before this returns. kInvalidArgument where there is no such kernel.
  Status Launch(std::string_view kernel, unsigned grid_x, unsigned block_x,
                std::span<void* const> params);
  // Waits for everything on the stream. kMemoryFault where a kernel used an address that it may
  // not, after which the context is lost.
  Status Synchronize();

  int multiprocessors() const { return multiprocessors_; }
  const CudaContextPtr& context() const { return context_; }

 private:
  OwnKernels(CudaContextPtr context, CudaModule module, int multiprocessors)
      : context_(std::move(context)),
        module_(std::move(module)),
        multiprocessors_(multiprocessors) {}

  const CudaContextPtr context_;
  const CudaModule module_;
  const int multiprocessors_;
  std::mutex mutex_;  // of kernels_
  std::map<std::string, cu::Function, std::less<>> kernels_;
};

}  // namespace cudaforge
