#include "target/cuda/nvrtc_api.h"

#include <utility>

#include "base/dynamic_library.h"
#include "target/cuda/search_paths.h"

namespace cudaforge {

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
  const DynamicLibrary& library = KeepLoaded(*std::move(opened));
  NvrtcApi api;
  api.path = library.path();
  SymbolLoader load{library, {}};
  load.Required(api.Version, "nvrtcVersion");
  load.Required(api.GetNumSupportedArchs, "nvrtcGetNumSupportedArchs");
  load.Required(api.GetSupportedArchs, "nvrtcGetSupportedArchs");
  load.Required(api.CreateProgram, "nvrtcCreateProgram");
  load.Required(api.DestroyProgram, "nvrtcDestroyProgram");
  load.Required(api.CompileProgram, "nvrtcCompileProgram");
  load.Required(api.GetProgramLogSize, "nvrtcGetProgramLogSize");
  load.Required(api.GetProgramLog, "nvrtcGetProgramLog");
  load.Required(api.GetCubinSize, "nvrtcGetCUBINSize");
  load.Required(api.GetCubin, "nvrtcGetCUBIN");
  load.Required(api.GetErrorString, "nvrtcGetErrorString");
  if (!load.missing.empty()) {
    return Status::Unavailable(api.path + " has no " + load.missing +
                               ": NVRTC 12.0 or newer is needed");
  }
  load.Optional(api.SetFlowCallback, "nvrtcSetFlowCallback");
  return api;
}

}  // namespace cudaforge
