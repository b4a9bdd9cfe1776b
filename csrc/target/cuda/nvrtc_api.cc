#include "target/cuda/nvrtc_api.h"

#include <memory>
#include <mutex>
#include <utility>

#include "base/dynamic_library.h"
#include "target/cuda/search_paths.h"

namespace cudaforge {
namespace {

template <typename Function>
void Resolve(const DynamicLibrary& library, const char* name, Function& function,
             std::string& missing) {
  function = reinterpret_cast<Function>(library.Symbol(name));
  if (function == nullptr && missing.empty()) missing = name;
}

// NVRTC keeps state of its own that does not survive unloading.
const DynamicLibrary& Keep(DynamicLibrary library) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::unique_ptr<DynamicLibrary>>;
  const std::lock_guard<std::mutex> lock(mutex);
  kept->push_back(std::make_unique<DynamicLibrary>(std::move(library)));
  return *kept->back();
}

}  // namespace

Result<NvrtcApi> NvrtcApi::Open(const std::vector<std::string>& search_paths) {
  Result<DynamicLibrary> opened = DynamicLibrary::Open(
      CudaLibraryCandidates(search_paths, {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}));
  if (!opened.ok()) {
    return Status::Unavailable(
        "NVRTC is not there: pip install nvidia-cuda-nvrtc (PyTorch's CUDA wheels bring it), or "
        "set CUDAFORGE_CUDA_PATH "
        "to the CUDA toolkit; " +
        opened.status().message());
  }
  const DynamicLibrary& library = Keep(*std::move(opened));
  NvrtcApi api;
  api.path = library.path();
  std::string missing;
  Resolve(library, "nvrtcVersion", api.Version, missing);
  Resolve(library, "nvrtcGetNumSupportedArchs", api.GetNumSupportedArchs, missing);
  Resolve(library, "nvrtcGetSupportedArchs", api.GetSupportedArchs, missing);
  Resolve(library, "nvrtcCreateProgram", api.CreateProgram, missing);
  Resolve(library, "nvrtcDestroyProgram", api.DestroyProgram, missing);
  Resolve(library, "nvrtcCompileProgram", api.CompileProgram, missing);
  Resolve(library, "nvrtcGetProgramLogSize", api.GetProgramLogSize, missing);
  Resolve(library, "nvrtcGetProgramLog", api.GetProgramLog, missing);
  Resolve(library, "nvrtcGetCUBINSize", api.GetCubinSize, missing);
  Resolve(library, "nvrtcGetCUBIN", api.GetCubin, missing);
  Resolve(library, "nvrtcGetErrorString", api.GetErrorString, missing);
  if (!missing.empty()) {
    return Status::Unavailable(api.path + " has no " + missing + ": NVRTC 12.0 or newer is needed");
  }
  std::string optional;
  Resolve(library, "nvrtcSetFlowCallback", api.SetFlowCallback, optional);
  return api;
}

}  // namespace cudaforge
