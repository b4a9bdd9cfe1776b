#include "target/cuda/driver_api.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/dynamic_library.h"

namespace cudaforge::cu {
namespace {

constexpr Result kOutOfMemory = 2;
constexpr Result kNoDevice = 100;
constexpr Result kIllegalAddress = 700;
constexpr Result kMisalignedAddress = 716;

// cuda.h maps its plain names to the "_v2" names.
std::string ResolveAll(const DynamicLibrary& library, DriverApi& api) {
  SymbolLoader load{library, {}};
  load.Required(api.Init, "cuInit");
  load.Required(api.DriverGetVersion, "cuDriverGetVersion");
  load.Required(api.GetErrorName, "cuGetErrorName");
  load.Required(api.GetErrorString, "cuGetErrorString");
  load.Required(api.DeviceGetCount, "cuDeviceGetCount");
  load.Required(api.DeviceGet, "cuDeviceGet");
  load.Required(api.DeviceGetName, "cuDeviceGetName");
  load.Required(api.DeviceGetAttribute, "cuDeviceGetAttribute");
  load.Required(api.DeviceTotalMem, "cuDeviceTotalMem_v2");
  load.Required(api.PrimaryContextRetain, "cuDevicePrimaryCtxRetain");
  load.Required(api.PrimaryContextRelease, "cuDevicePrimaryCtxRelease_v2");
  load.Required(api.ContextGetCurrent, "cuCtxGetCurrent");
  load.Required(api.ContextSetCurrent, "cuCtxSetCurrent");
  load.Required(api.ContextSynchronize, "cuCtxSynchronize");
  load.Required(api.ModuleLoadData, "cuModuleLoadData");
  load.Required(api.ModuleUnload, "cuModuleUnload");
  load.Required(api.ModuleGetFunction, "cuModuleGetFunction");
  load.Required(api.FunctionGetAttribute, "cuFuncGetAttribute");
  load.Required(api.FunctionSetAttribute, "cuFuncSetAttribute");
  load.Required(api.LaunchKernelEx, "cuLaunchKernelEx");
  load.Required(api.OccupancyBlocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  load.Required(api.MemAlloc, "cuMemAlloc_v2");
  load.Required(api.MemFree, "cuMemFree_v2");
  load.Required(api.MemGetInfo, "cuMemGetInfo_v2");
  load.Required(api.MemGetAllocationGranularity, "cuMemGetAllocationGranularity");
  load.Required(api.MemCreate, "cuMemCreate");
  load.Required(api.MemRelease, "cuMemRelease");
  load.Required(api.MemAddressReserve, "cuMemAddressReserve");
  load.Required(api.MemAddressFree, "cuMemAddressFree");
  load.Required(api.MemMap, "cuMemMap");
  load.Required(api.MemUnmap, "cuMemUnmap");
  load.Required(api.MemSetAccess, "cuMemSetAccess");
  load.Required(api.MemExport, "cuMemExportToShareableHandle");
  load.Required(api.MemImport, "cuMemImportFromShareableHandle");
  load.Required(api.MemcpyHtoD, "cuMemcpyHtoD_v2");
  load.Required(api.MemcpyDtoH, "cuMemcpyDtoH_v2");
  load.Required(api.MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2");
  load.Required(api.MemsetD32Async, "cuMemsetD32Async");
  load.Required(api.MemsetD8Async, "cuMemsetD8Async");
  load.Required(api.MemHostAlloc, "cuMemHostAlloc");
  load.Required(api.MemFreeHost, "cuMemFreeHost");
  load.Required(api.MemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2");
  load.Required(api.StreamCreate, "cuStreamCreate");
  load.Required(api.StreamDestroy, "cuStreamDestroy_v2");
  load.Required(api.StreamSynchronize, "cuStreamSynchronize");
  load.Required(api.StreamIsCapturing, "cuStreamIsCapturing");
  load.Required(api.ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
  load.Required(api.EventCreate, "cuEventCreate");
  load.Required(api.EventDestroy, "cuEventDestroy_v2");
  load.Required(api.EventRecord, "cuEventRecord");
  load.Required(api.EventSynchronize, "cuEventSynchronize");
  load.Required(api.EventElapsedTime, "cuEventElapsedTime");
  load.Optional(api.FunctionLoad, "cuFuncLoad");
  load.Optional(api.FunctionGetParamInfo, "cuFuncGetParamInfo");
  load.Optional(api.ResetPersistingL2, "cuCtxResetPersistingL2Cache");
  load.Optional(api.TensorMapEncodeTiled, "cuTensorMapEncodeTiled");
  load.Optional(api.TensorMapReplaceAddress, "cuTensorMapReplaceAddress");
  return load.missing;
}

// Called once. `api` is null if there is a fault.
struct Opened {
  const DriverApi* api = nullptr;
  DriverFault fault;
};

Opened Open() {
  const auto fault = [](std::string what, std::string advice, bool missing = false) {
    return Opened{nullptr, {missing, std::move(what), std::move(advice)}};
  };
  ::cudaforge::Result<DynamicLibrary> library = DynamicLibrary::Open({"libcuda.so.1"});
  if (!library.ok()) {
    const bool missing = library.status().code() == StatusCode::kNotFound;
    const std::string what = missing ? "no NVIDIA driver" : "the NVIDIA driver does not load";
    return fault(what + " (" + library.status().message() + ")",
                 "install the driver, or in a container start it with its GPUs (--gpus all)",
                 missing);
  }
  // Never unloaded: the driver has threads, and kernels may run until the process ends.
  static const auto* const kept = new DynamicLibrary(*std::move(library));
  static auto* const api = new DriverApi;
  api->path = kept->path();
  if (const std::string missing = ResolveAll(*kept, *api); !missing.empty()) {
    return fault("the NVIDIA driver has no " + missing, "install driver 525 (CUDA 12) or newer");
  }
  int count = 0;
  Result error = api->Init(0);
  if (error == 0) error = api->DeviceGetCount(&count);
  if (error == kNoDevice || (error == 0 && count == 0)) {
    return fault("the NVIDIA driver sees no GPU", "check nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  const Status started = api->Check(error, "starting the NVIDIA driver");
  if (!started.ok()) return fault(started.message(), "check nvidia-smi");
  return {api, {}};
}

const Opened& OpenedOnce() {
  static const auto* const opened = new Opened(Open());
  return *opened;
}

}  // namespace

const ::cudaforge::Result<const DriverApi*>& DriverApi::Get() {
  static const auto* const api = [] {
    const auto& [opened, fault] = OpenedOnce();
    return opened != nullptr ? new ::cudaforge::Result<const DriverApi*>(opened)
                             : new ::cudaforge::Result<const DriverApi*>(
                                   Status::Unavailable(fault.what + "; " + fault.advice));
  }();
  return *api;
}

const DriverFault& DriverApi::Fault() {
  CF_CHECK(OpenedOnce().api == nullptr) << "the driver has no fault";
  return OpenedOnce().fault;
}

Status DriverApi::Check(Result result, const char* what, StatusCode code) const {
  if (result == 0) return Status::Ok();
  const char* name = nullptr;
  const char* text = nullptr;
  if (GetErrorName(result, &name) != 0 || name == nullptr) name = "unknown CUDA error";
  if (GetErrorString(result, &text) != 0 || text == nullptr) text = "no description";
  if (result == kOutOfMemory) code = StatusCode::kNoMemory;
  if (result == kIllegalAddress || result == kMisalignedAddress) code = StatusCode::kMemoryFault;
  return {code, std::string(what) + ": " + name + " (" + text + ")"};
}

bool DriverApi::IsSticky(Result result) {
  // ECC, NVLink, illegal address, launch timeout, context destroyed, assert, stack, instruction,
  // misaligned address, address space, program counter, launch failure, unknown.
  static constexpr Result kSticky[] = {214, 220, 700, 702, 709, 710, 714,
                                       715, 716, 717, 718, 719, 999};
  return std::find(std::begin(kSticky), std::end(kSticky), result) != std::end(kSticky);
}

}  // namespace cudaforge::cu
