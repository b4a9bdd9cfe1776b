#include "target/cuda/cupti_api.h"

#include "target/cuda/search_paths.h"

namespace cudaforge::cupti {
namespace {

struct Error {
  Result result;
  const char* name;
  const char* advice = "";
};

constexpr const char kAdministrators[] =
    "; hardware counters are for administrators on this machine: run as root, or load the driver "
    "with NVreg_RestrictProfilingToAdminUsers=0";

// Not from CUPTI's function for error names: in CUDA 13.2 it recurses infinitely without a driver.
constexpr Error kErrors[] = {
    {1, "CUPTI_ERROR_INVALID_PARAMETER"},
    {7, "CUPTI_ERROR_INVALID_OPERATION"},
    {8, "CUPTI_ERROR_OUT_OF_MEMORY"},
    {9, "CUPTI_ERROR_HARDWARE"},
    {14, "CUPTI_ERROR_NOT_COMPATIBLE"},
    {15, "CUPTI_ERROR_NOT_INITIALIZED"},
    {17, "CUPTI_ERROR_INVALID_METRIC_NAME"},
    {kHardwareBusy, "CUPTI_ERROR_HARDWARE_BUSY",
     "; another program holds the counters (DCGM: dcgmi profile --pause)"},
    {kNotSupported, "CUPTI_ERROR_NOT_SUPPORTED"},
    {kVirtualDevice, "CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED"},
    {kInsufficientPrivileges, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", kAdministrators},
    {kOldProfilerInitialized, "CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED"},
    {kLegacyProfiler, "CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED"},
    {kMultipleSubscribers, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
     "; another profiler is attached to this process"},
    {kVirtualDevicePrivileges, "CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES",
     kAdministrators},
    {kConfidentialComputing, "CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED"},
    {kCmpDevice, "CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED"},
    {kMigDevice, "CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED"},
    {kSliDevice, "CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED"},
    {kWslDevice, "CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED"},
    {kInvalidChipName, "CUPTI_ERROR_INVALID_CHIP_NAME", "; a newer CUPTI may know this chip"},
    {999, "CUPTI_ERROR_UNKNOWN"},
};

}  // namespace

::cudaforge::Result<CuptiApi> CuptiApi::Open(const std::vector<std::string>& search_paths) {
  CF_ASSIGN_OR_RETURN(SymbolLoader load,
                      OpenCudaLibrary(search_paths, CuptiSonames(), "CUPTI", "nvidia-cuda-cupti"));
  CuptiApi api;
  api.path = load.library.path();
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

Status CuptiApi::Check(Result result, const char* what) {
  if (result == 0) return Status::Ok();
  const std::string begin = std::string(what) + ": ";
  for (const Error& error : kErrors) {
    if (error.result == result) return Status::Unavailable(begin + error.name + error.advice);
  }
  return Status::Unavailable(begin + "CUPTI error " + std::to_string(result));
}

}  // namespace cudaforge::cupti
