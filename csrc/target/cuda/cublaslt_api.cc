#include "target/cuda/cublaslt_api.h"

#include "target/cuda/search_paths.h"

namespace cudaforge::lt {

::cudaforge::Result<Api> Api::Open(const std::vector<std::string>& search_paths) {
  CF_ASSIGN_OR_RETURN(SymbolLoader load, OpenCudaLibrary(search_paths, CublasLtSonames(),
                                                         "cuBLASLt", "nvidia-cublas"));
  Api api;
  api.path = load.library.path();
  load.Required(api.GetVersion, "cublasLtGetVersion");
  load.Required(api.Create, "cublasLtCreate");
  load.Required(api.LayoutInit, "cublasLtMatrixLayoutInit_internal");
  load.Required(api.LayoutSet, "cublasLtMatrixLayoutSetAttribute");
  load.Required(api.DescriptionInit, "cublasLtMatmulDescInit_internal");
  load.Required(api.DescriptionSet, "cublasLtMatmulDescSetAttribute");
  load.Required(api.PreferenceInit, "cublasLtMatmulPreferenceInit_internal");
  load.Required(api.PreferenceSet, "cublasLtMatmulPreferenceSetAttribute");
  load.Required(api.GetHeuristic, "cublasLtMatmulAlgoGetHeuristic");
  load.Required(api.AlgorithmCheck, "cublasLtMatmulAlgoCheck");
  load.Required(api.AlgorithmGet, "cublasLtMatmulAlgoConfigGetAttribute");
  load.Required(api.AlgorithmSet, "cublasLtMatmulAlgoConfigSetAttribute");
  load.Required(api.Matmul, "cublasLtMatmul");
  load.Required(api.GetStatusName, "cublasLtGetStatusName");
  CF_RETURN_IF_ERROR(CheckComplete(load, "cuBLASLt 12.0"));
  return api;
}

Status Api::Check(Result result, const char* what) const {
  if (result == 0) return Status::Ok();
  const char* const name = GetStatusName(result);
  return Status::Internal(std::string(what) + ": " + (name != nullptr ? name : "unknown error"));
}

std::string Version(const std::vector<std::string>& search_paths) {
  const ::cudaforge::Result<Api> api = Api::Open(search_paths);
  return api.ok() ? std::to_string(api->GetVersion()) : "";
}

}  // namespace cudaforge::lt
