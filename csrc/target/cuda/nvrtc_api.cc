#include "target/cuda/nvrtc_api.h"

#include "target/cuda/search_paths.h"

namespace cudaforge {

Result<NvrtcApi> NvrtcApi::Open(const std::vector<std::string>& search_paths) {
  CF_ASSIGN_OR_RETURN(SymbolLoader load,
                      OpenCudaLibrary(search_paths, NvrtcSonames(), "NVRTC", "nvidia-cuda-nvrtc"));
  NvrtcApi api;
  api.path = load.library.path();
  load.Required(api.Version, "nvrtcVersion");
  load.Required(api.GetNumSupportedArchs, "nvrtcGetNumSupportedArchs");
  load.Required(api.GetSupportedArchs, "nvrtcGetSupportedArchs");
  load.Required(api.CreateProgram, "nvrtcCreateProgram");
  load.Required(api.DestroyProgram, "nvrtcDestroyProgram");
  load.Required(api.CompileProgram, "nvrtcCompileProgram");
  load.Required(api.GetProgramLogSize, "nvrtcGetProgramLogSize");
  load.Required(api.GetProgramLog, "nvrtcGetProgramLog");
  load.Required(api.GetPtxSize, "nvrtcGetPTXSize");
  load.Required(api.GetPtx, "nvrtcGetPTX");
  load.Required(api.GetCubinSize, "nvrtcGetCUBINSize");
  load.Required(api.GetCubin, "nvrtcGetCUBIN");
  load.Required(api.GetErrorString, "nvrtcGetErrorString");
  CF_RETURN_IF_ERROR(CheckComplete(load, "NVRTC 12.0"));
  load.Optional(api.SetFlowCallback, "nvrtcSetFlowCallback");
  return api;
}

}  // namespace cudaforge
