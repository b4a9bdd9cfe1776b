#include "target/cuda/cupti_api.h"

#include "target/cuda/search_paths.h"

namespace cudaforge::cupti {
namespace {

const char* Advice(Result result) {
  switch (result) {
    case kInsufficientPrivileges:
    case kVirtualDevicePrivileges:
      return "; hardware counters are for administrators on this machine: run as root, or load the "
             "driver with NVreg_RestrictProfilingToAdminUsers=0";
    case kHardwareBusy:
      return "; another program holds the counters (DCGM: dcgmi profile --pause)";
    case kMultipleSubscribers:
      return "; another profiler is attached to this process";
    case kInvalidChipName:
      return "; a newer CUPTI may know this chip";
    default:
      return "";
  }
}

}  // namespace

::cudaforge::Result<CuptiApi> CuptiApi::Open(const std::vector<std::string>& search_paths) {
  CF_ASSIGN_OR_RETURN(SymbolLoader load,
                      OpenCudaLibrary(search_paths, CuptiSonames(), "CUPTI", "nvidia-cuda-cupti"));
  CuptiApi api;
  api.path = load.library.path();
  load.Required(api.GetResultString, "cuptiGetResultString");
  load.Required(api.ProfilerInitialize, "cuptiProfilerInitialize");
  load.Required(api.ProfilerDeInitialize, "cuptiProfilerDeInitialize");
  load.Required(api.DeviceSupported, "cuptiProfilerDeviceSupported");
  load.Required(api.DeviceGetChipName, "cuptiDeviceGetChipName");
  load.Required(api.GetCounterAvailability, "cuptiProfilerGetCounterAvailability");
  load.Required(api.HostInitialize, "cuptiProfilerHostInitialize");
  load.Required(api.HostDeinitialize, "cuptiProfilerHostDeinitialize");
  load.Required(api.HostGetSupportedChips, "cuptiProfilerHostGetSupportedChips");
  load.Required(api.HostConfigAddMetrics, "cuptiProfilerHostConfigAddMetrics");
  load.Required(api.HostGetConfigImageSize, "cuptiProfilerHostGetConfigImageSize");
  load.Required(api.HostGetConfigImage, "cuptiProfilerHostGetConfigImage");
  load.Required(api.HostGetNumOfPasses, "cuptiProfilerHostGetNumOfPasses");
  load.Required(api.HostEvaluateToGpuValues, "cuptiProfilerHostEvaluateToGpuValues");
  load.Required(api.RangeEnable, "cuptiRangeProfilerEnable");
  load.Required(api.RangeDisable, "cuptiRangeProfilerDisable");
  load.Required(api.RangeSetConfig, "cuptiRangeProfilerSetConfig");
  load.Required(api.RangeStart, "cuptiRangeProfilerStart");
  load.Required(api.RangeStop, "cuptiRangeProfilerStop");
  load.Required(api.RangePush, "cuptiRangeProfilerPushRange");
  load.Required(api.RangePop, "cuptiRangeProfilerPopRange");
  load.Required(api.RangeDecodeData, "cuptiRangeProfilerDecodeData");
  load.Required(api.RangeGetCounterDataSize, "cuptiRangeProfilerGetCounterDataSize");
  load.Required(api.RangeCounterDataInitialize, "cuptiRangeProfilerCounterDataImageInitialize");
  load.Required(api.RangeGetCounterDataInfo, "cuptiRangeProfilerGetCounterDataInfo");
  CF_RETURN_IF_ERROR(CheckComplete(load, "CUPTI 12.8"));
  return api;
}

Status CuptiApi::Check(Result result, const char* what) const {
  if (result == 0) return Status::Ok();
  const char* name = nullptr;
  const std::string error = GetResultString(result, &name) == 0 && name != nullptr
                                ? std::string(name)
                                : "CUPTI error " + std::to_string(result);
  return Status::Unavailable(std::string(what) + ": " + error + Advice(result));
}

}  // namespace cudaforge::cupti
