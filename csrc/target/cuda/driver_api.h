// The CUDA driver as a table of function pointers, opened at run time. Declares the used parts of
// cuda.h (values as in CUDA 12 and 13), so that a build needs no CUDA toolkit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace cudaforge::cu {

using Result = int;  // CUresult; 0: success
using Device = int;
using DevicePtr = unsigned long long;  // CUdeviceptr
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;

// CUdevice_attribute
enum Attribute : int {
  kMaxThreadsPerBlock = 1,
  kMaxGridX = 5,
  kMaxGridY = 6,
  kMaxGridZ = 7,
  kSharedPerBlock = 8,
  kWarpSize = 10,
  kRegistersPerBlock = 12,
  kClockKhz = 13,
  kMultiprocessors = 16,
  kMemoryClockKhz = 36,
  kMemoryBusBits = 37,
  kL2Bytes = 38,
  kThreadsPerMultiprocessor = 39,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kSharedPerMultiprocessor = 81,
  kRegistersPerMultiprocessor = 82,
  kSharedPerBlockOptin = 97,
  kBlocksPerMultiprocessor = 106,
  kReservedSharedPerBlock = 111,
  kClusterLaunch = 120,
};

// CUfunction_attribute
enum FunctionAttribute : int {
  kFunctionMaxThreads = 0,
  kFunctionSharedBytes = 1,
  kFunctionLocalBytes = 3,
  kFunctionRegisters = 4,
  kFunctionMaxDynamicShared = 8,
  kFunctionNonPortableCluster = 14,
};

inline constexpr int kLaunchAttributeCooperative = 2;
inline constexpr int kLaunchAttributeCluster = 4;          // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
inline constexpr int kLaunchAttributeDependentLaunch = 6;  // ..._PROGRAMMATIC_STREAM_SERIALIZATION
inline constexpr unsigned kStreamDefault = 0;  // ordered against the legacy default stream
inline constexpr unsigned kEventDefault = 0;
inline constexpr int kCaptureModeRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
inline constexpr unsigned kHostAllocDeviceMap = 2;

using MemoryHandle = unsigned long long;  // CUmemGenericAllocationHandle
inline constexpr int kGranularityMinimum = 0;
inline constexpr int kHandlePosixFd = 1;

struct MemoryLocation {  // CUmemLocation
  int type = 1;          // the memory of a device
  Device device = 0;
};

struct AllocationProperties {  // CUmemAllocationProp
  int type = 1;                // pinned
  int handle_types = kHandlePosixFd;
  MemoryLocation location;
  void* windows = nullptr;
  unsigned char flags[8] = {};
};
static_assert(sizeof(AllocationProperties) == 32);

struct MemoryAccess {  // CUmemAccessDesc
  MemoryLocation location;
  int access = 1;  // 1: read-only, 3: read and write
};
static_assert(sizeof(MemoryAccess) == 12);

struct LaunchAttribute {  // CUlaunchAttribute
  int id = 0;
  char pad[4] = {};
  union {
    char bytes[64];
    unsigned cluster[3];
    int flag;
  } value = {};
};
static_assert(sizeof(LaunchAttribute) == 72);

struct LaunchConfig {  // CUlaunchConfig
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  Stream stream = nullptr;
  const LaunchAttribute* attributes = nullptr;
  unsigned num_attributes = 0;
};
static_assert(sizeof(LaunchConfig) == 56);

struct alignas(64) TensorMap {  // CUtensorMap
  unsigned long long opaque[16];
};
static_assert(sizeof(TensorMap) == 128);

// CUtensorMapDataType
enum TensorMapType : int {
  kTensorMapInt32 = 3,
  kTensorMapInt64 = 5,
  kTensorMapFloat16 = 6,
  kTensorMapFloat32 = 7,
  kTensorMapFloat64 = 8,
  kTensorMapBFloat16 = 9,
};

inline constexpr int kTensorMapInterleaveNone = 0;
inline constexpr int kTensorMapPromotion128B = 2;  // CU_TENSOR_MAP_L2_PROMOTION_L2_128B
inline constexpr int kTensorMapFillZeros = 0;      // CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE

// Why the driver cannot be used.
struct DriverFault {
  bool missing = false;  // libcuda does not exist; else it exists but is unusable
  std::string what;
  std::string advice;  // what to do
};

struct DriverApi {
  // The driver, opened and initialised on first use and never closed. kUnavailable, with advice:
  // libcuda, one of its functions or a device is missing. Thread-safe.
  static const ::cudaforge::Result<const DriverApi*>& Get();
  // Why Get() failed. Thread-safe. REQUIRES: it failed.
  static const DriverFault& Fault();

  // Ok for 0. Else an error with "what: CUDA_ERROR_NAME (description)": kMemoryFault for an invalid
  // access by a kernel, kNoMemory, else `code`.
  Status Check(Result result, const char* what, StatusCode code = StatusCode::kInternal) const;
  // Errors after which the context is lost.
  static bool IsSticky(Result result);

  std::string path;  // of libcuda

  Result (*Init)(unsigned flags) = nullptr;
  Result (*DriverGetVersion)(int* version) = nullptr;
  Result (*GetErrorName)(Result error, const char** name) = nullptr;
  Result (*GetErrorString)(Result error, const char** text) = nullptr;
  Result (*DeviceGetCount)(int* count) = nullptr;
  Result (*DeviceGet)(Device* device, int ordinal) = nullptr;
  Result (*DeviceGetName)(char* name, int length, Device device) = nullptr;
  Result (*DeviceGetAttribute)(int* value, int attribute, Device device) = nullptr;
  Result (*DeviceTotalMem)(size_t* bytes, Device device) = nullptr;
  Result (*PrimaryContextRetain)(Context* context, Device device) = nullptr;
  Result (*PrimaryContextRelease)(Device device) = nullptr;
  Result (*ContextGetCurrent)(Context* context) = nullptr;
  Result (*ContextSetCurrent)(Context context) = nullptr;
  Result (*ContextSynchronize)() = nullptr;
  Result (*ModuleLoadData)(Module* module, const void* image) = nullptr;
  Result (*ModuleUnload)(Module module) = nullptr;
  Result (*ModuleGetFunction)(Function* function, Module module, const char* name) = nullptr;
  Result (*FunctionGetAttribute)(int* value, int attribute, Function function) = nullptr;
  Result (*FunctionSetAttribute)(Function function, int attribute, int value) = nullptr;
  Result (*LaunchKernelEx)(const LaunchConfig* config, Function function, void** params,
                           void** extra) = nullptr;
  Result (*OccupancyBlocks)(int* blocks, Function function, int threads,
                            size_t dynamic_shared_bytes) = nullptr;
  Result (*MemAlloc)(DevicePtr* data, size_t bytes) = nullptr;
  Result (*MemFree)(DevicePtr data) = nullptr;
  Result (*MemGetInfo)(size_t* free, size_t* total) = nullptr;
  Result (*MemGetAllocationGranularity)(size_t* bytes, const AllocationProperties* properties,
                                        int option) = nullptr;
  Result (*MemCreate)(MemoryHandle* handle, size_t bytes, const AllocationProperties* properties,
                      unsigned long long flags) = nullptr;
  Result (*MemRelease)(MemoryHandle handle) = nullptr;
  Result (*MemAddressReserve)(DevicePtr* base, size_t bytes, size_t alignment, DevicePtr wanted,
                              unsigned long long flags) = nullptr;
  Result (*MemAddressFree)(DevicePtr base, size_t bytes) = nullptr;
  Result (*MemMap)(DevicePtr to, size_t bytes, size_t offset, MemoryHandle handle,
                   unsigned long long flags) = nullptr;
  Result (*MemUnmap)(DevicePtr data, size_t bytes) = nullptr;
  Result (*MemSetAccess)(DevicePtr data, size_t bytes, const MemoryAccess* access,
                         size_t count) = nullptr;
  Result (*MemExport)(void* shareable, MemoryHandle handle, int type,
                      unsigned long long flags) = nullptr;
  Result (*MemImport)(MemoryHandle* handle, void* shareable, int type) = nullptr;
  Result (*MemcpyHtoD)(DevicePtr to, const void* from, size_t bytes) = nullptr;
  Result (*MemcpyDtoH)(void* to, DevicePtr from, size_t bytes) = nullptr;
  Result (*MemcpyDtoDAsync)(DevicePtr to, DevicePtr from, size_t bytes, Stream stream) = nullptr;
  Result (*MemsetD32Async)(DevicePtr data, unsigned value, size_t count, Stream stream) = nullptr;
  Result (*MemsetD8Async)(DevicePtr data, unsigned char value, size_t count,
                          Stream stream) = nullptr;
  Result (*MemHostAlloc)(void** data, size_t bytes, unsigned flags) = nullptr;
  Result (*MemFreeHost)(void* data) = nullptr;
  Result (*MemHostGetDevicePointer)(DevicePtr* device, void* host, unsigned flags) = nullptr;
  Result (*StreamCreate)(Stream* stream, unsigned flags) = nullptr;
  Result (*StreamDestroy)(Stream stream) = nullptr;
  Result (*StreamSynchronize)(Stream stream) = nullptr;
  Result (*StreamIsCapturing)(Stream stream, int* status) = nullptr;  // 0: not capturing
  Result (*ThreadExchangeStreamCaptureMode)(int* mode) = nullptr;
  Result (*EventCreate)(Event* event, unsigned flags) = nullptr;
  Result (*EventDestroy)(Event event) = nullptr;
  Result (*EventRecord)(Event event, Stream stream) = nullptr;
  Result (*EventSynchronize)(Event event) = nullptr;
  Result (*EventElapsedTime)(float* ms, Event start, Event end) = nullptr;
  // May be nullptr: newer than the oldest supported driver, or optional.
  Result (*FunctionLoad)(Function function) = nullptr;
  Result (*FunctionGetParamInfo)(Function function, size_t index, size_t* offset,
                                 size_t* bytes) = nullptr;
  Result (*ResetPersistingL2)() = nullptr;
  Result (*TensorMapEncodeTiled)(TensorMap* map, int type, uint32_t rank, void* address,
                                 const uint64_t* sizes, const uint64_t* strides,
                                 const uint32_t* box, const uint32_t* element_strides,
                                 int interleave, int swizzle, int l2_promotion, int fill) = nullptr;
  Result (*TensorMapReplaceAddress)(TensorMap* map, void* address) = nullptr;
};

}  // namespace cudaforge::cu
