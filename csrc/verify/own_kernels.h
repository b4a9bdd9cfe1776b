// The verifier's CUDA kernels, from csrc/verify/device, compiled by NVRTC for the device's
// architecture. Kernels of one element type are separate programs, compiled on first use; all
// others are one program.
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

// The texts of csrc/verify/device, sorted by path ("device/portable.h"). To add kernels, add a file
// device/NAME.cu of `extern "C" __global__` wrappers. It may include "verify/device/OTHER.h"; CMake
// embeds both. Put code that the CPU path shares into a header (verify/device/portable.h). The line
// "CF_KERNEL_OF_TYPE(name, type)" makes a kernel of one type, if its file defines that macro.
std::span<const EmbeddedText> OwnKernelTexts();

// Returns the program with `kernel`, with includes of embedded texts expanded once. Of a kernel of
// one type: its file, with only that kernel. Of any other: all files, without kernels of one type.
// kInternal: an unknown include.
Result<std::string> OwnKernelSource(std::string_view kernel);

// The kernels of one type, sorted.
std::vector<std::string> OwnKernelsOfTypes();

// Runs in the primary context, which libtorch uses too, on the legacy default stream, which is
// ATen's. So launches are ordered with ATen calls. Thread-safe.
class OwnKernels {
 public:
  // Compiles what every region needs, and the kernels of float32, in threads: about a second, once
  // per process and architecture. `search_paths`: for NVRTC, see target/cuda/search_paths.h.
  // kUnavailable: no driver, device or NVRTC, or an NVRTC that does not support the device.
  static Result<std::unique_ptr<OwnKernels>> Create(int device_index,
                                                    const std::vector<std::string>& search_paths);
  OwnKernels(const OwnKernels&) = delete;
  OwnKernels& operator=(const OwnKernels&) = delete;

  // Starts `kernel`; compiles it first if needed (0.3 to 0.5 s). `params`: the addresses of its
  // arguments, as for cuLaunchKernel; read before this returns. kInvalidArgument: no such kernel.
  Status Launch(std::string_view kernel, unsigned grid_x, unsigned block_x,
                std::span<void* const> params);
  // Waits for the stream. kMemoryFault: a kernel used an invalid address; the context is lost then.
  Status Synchronize();

  int multiprocessors() const { return multiprocessors_; }
  const CudaContextPtr& context() const { return context_; }

 private:
  OwnKernels(CudaContextPtr context, std::string arch, std::vector<std::string> search_paths,
             int multiprocessors)
      : context_(std::move(context)),
        arch_(std::move(arch)),
        search_paths_(std::move(search_paths)),
        multiprocessors_(multiprocessors) {}

  Result<cu::Function> Find(std::string_view kernel);

  const CudaContextPtr context_;
  const std::string arch_;
  const std::vector<std::string> search_paths_;
  const int multiprocessors_;
  std::mutex mutex_;                           // guards modules_
  std::map<std::string, CudaModule> modules_;  // by the kernel of one type; "": all others
  std::map<std::string, cu::Function, std::less<>> kernels_;
};

}  // namespace cudaforge
