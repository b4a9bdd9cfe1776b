#include "target/cuda/nvrtc_api.h"

#include <utility>

#include "target/cuda/search_paths.h"

namespace cudaforge {
namespace {

template <typename Function>
void Resolve(const DynamicLibrary& library, const char* name, Function& function,
             std::string& missing) {
  function = reinterpret_cast<Function>(library.Symbol(name));
  if (function == nullptr && missing.empty()) missing = name;
}

}  // namespace

Result<NvrtcApi> NvrtcApi::Open(const std::vector<std::string>& search_paths) {
  Result<DynamicLibrary> library = DynamicLibrary::Open(
      CudaLibraryCandidates(search_paths, {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}));
  if (!library.ok()) {
    return Status::Unavailable(
        "NVRTC is not there: pip install nvidia-cuda-nvrtc (PyTorch's CUDA wheels bring it), or "
        "set CUDAFORGE_CUDA_PATH "
        "to the CUDA toolkit; " +
        library.status().message());
  }
  NvrtcApi api{.library = *std::move(library)};
  std::string missing;
  Resolve(api.library, "nvrtcVersion", api.Version, missing);
  Resolve(api.library, "nvrtcGetNumSupportedArchs", api.GetNumSupportedArchs, missing);
  Resolve(api.library, "nvrtcGetSupportedArchs", api.GetSupportedArchs, missing);
  Resolve(api.library, "nvrtcCreateProgram", api.CreateProgram, missing);
  Resolve(api.library, "nvrtcDestroyProgram", api.DestroyProgram, missing);
  Resolve(api.library, "nvrtcCompileProgram", api.CompileProgram, missing);
  Resolve(api.library, "nvrtcGetProgramLogSize", api.GetProgramLogSize, missing);
  Resolve(api.library, "nvrtcGetProgramLog", api.GetProgramLog, missing);
  Resolve(api.library, "nvrtcGetCUBINSize", api.GetCubinSize, missing);
  Resolve(api.library, "nvrtcGetCUBIN", api.GetCubin, missing);
  Resolve(api.library, "nvrtcGetErrorString", api.GetErrorString, missing);
  if (!missing.empty()) {
    return Status::Unavailable(api.library.path() + " has no " + missing +
                               ": NVRTC 12.0 or newer is needed");
  }
  std::string optional;
  Resolve(api.library, "nvrtcSetFlowCallback", api.SetFlowCallback, optional);
  return api;
}

}  // namespace cudaforge
