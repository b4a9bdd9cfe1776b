// The verifier's own CUDA kernels: the texts under csrc/verify/device (each .cu file and what it
// includes), compiled by NVRTC for the device's exact architecture. Kernels of one element type are
// programs of their own, compiled when they are first asked for; all others are one program.
//
// To add kernels, add a file device/NAME.cu of `extern "C" __global__` wrappers. It may include
// "verify/device/OTHER.h"; CMake makes both part of the program. Code that the CPU path uses as
// well goes into such a header (verify/device/portable.h). A kernel of one type is made by a line
// "CF_KERNEL_OF_TYPE(name, type)", where its file defines that macro.
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

// The program that has `kernel`, each include of a text of the folder replaced by that text the
// first time and dropped after that. Of a kernel of one type: its file, with no other such kernel.
// Of any other: all files, without kernels of one type. kInternal where an include names no text.
Result<std::string> OwnKernelSource(std::string_view kernel);

// The kernels of one type, sorted.
std::vector<std::string> OwnKernelsOfTypes();

// In the primary context, which libtorch uses too, on the legacy default stream, which is ATen's:
// launches run after the ATen calls before them and before those after them. Thread-safe.
class OwnKernels {
 public:
  // Compiles what every region needs and what those of float32 do, once per process and
  // architecture, in threads: about a second. `search_paths`: where NVRTC may be, see
  // target/cuda/search_paths.h. kUnavailable without a driver, a device or NVRTC, or where that
  // does not know the device.
  static Result<std::unique_ptr<OwnKernels>> Create(int device_index,
                                                    const std::vector<std::string>& search_paths);
  OwnKernels(const OwnKernels&) = delete;
  OwnKernels& operator=(const OwnKernels&) = delete;

  // Starts `kernel`, which takes 0.3 to 0.5 s more where it was not compiled before. `params`: the
  // addresses of its arguments, in order, as for cuLaunchKernel; they are read before this returns.
  // kInvalidArgument where there is no such kernel.
  Status Launch(std::string_view kernel, unsigned grid_x, unsigned block_x,
                std::span<void* const> params);
  // Waits for everything on the stream. kMemoryFault where a kernel used an address that it may
  // not, after which the context is lost.
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
  std::mutex mutex_;                           // of what follows
  std::map<std::string, CudaModule> modules_;  // by the kernel of one type; "": all others
  std::map<std::string, cu::Function, std::less<>> kernels_;
};

}  // namespace cudaforge
