// CUPTI's range profiler as a table of function pointers, opened at run time. Declares the used
// parts of cupti_range_profiler.h, cupti_profiler_host.h, cupti_profiler_target.h and
// cupti_target.h (CUDA 12.8 to 13), so that a build needs no CUDA toolkit. Functions named Host...
// need neither a GPU nor a driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "target/cuda/driver_api.h"

namespace cudaforge::cupti {

using Result = int;  // CUptiResult
inline constexpr Result kHardwareBusy = 26;
inline constexpr Result kNotSupported = 27;
inline constexpr Result kVirtualDevice = 33;
inline constexpr Result kInsufficientPrivileges = 35;
inline constexpr Result kOldProfilerInitialized = 36;
inline constexpr Result kLegacyProfiler = 38;
inline constexpr Result kMultipleSubscribers = 39;
inline constexpr Result kVirtualDevicePrivileges = 40;
inline constexpr Result kConfidentialComputing = 41;
inline constexpr Result kCmpDevice = 42;
inline constexpr Result kMigDevice = 43;
inline constexpr Result kSliDevice = 44;
inline constexpr Result kWslDevice = 45;
inline constexpr Result kInvalidChipName = 46;

using HostObject = struct HostObjectTag*;
using RangeObject = struct RangeObjectTag*;

inline constexpr int kRangeProfiler = 0;   // CUPTI_PROFILER_TYPE_RANGE_PROFILER
inline constexpr int kRangeProfiling = 0;  // CUPTI_PROFILER_RANGE_PROFILING
inline constexpr int kSupported = 3;       // CUPTI_PROFILER_CONFIGURATION_SUPPORTED
inline constexpr int kUserRange = 2;       // CUPTI_UserRange
inline constexpr int kUserReplay = 3;      // CUPTI_UserReplay

// Parameter structures. `size` is CUPTI's *_STRUCT_SIZE: the end of the last member, without
// padding.
struct InitializeParams {  // also of cuptiProfilerDeInitialize
  size_t size = 16;
  void* priv = nullptr;
};
static_assert(sizeof(InitializeParams) == 16);

struct DeviceSupportedParams {
  size_t size = 52;
  void* priv = nullptr;
  cu::Device device = 0;
  int supported = 0;
  int architecture = 0;
  int sli = 0;
  int vgpu = 0;
  int confidential_compute = 0;
  int cmp = 0;
  int wsl = 0;
  int api = kRangeProfiling;
};
static_assert(offsetof(DeviceSupportedParams, api) + sizeof(int) == 52);

struct ChipNameParams {
  size_t size = 32;
  void* priv = nullptr;
  size_t device_index = 0;
  const char* chip = nullptr;  // out
};
static_assert(sizeof(ChipNameParams) == 32);

struct CounterAvailabilityParams {
  size_t size = 40;
  void* priv = nullptr;
  cu::Context context = nullptr;
  size_t image_bytes = 0;    // out when `image` is null
  uint8_t* image = nullptr;  // filled
};
static_assert(sizeof(CounterAvailabilityParams) == 40);

struct HostInitializeParams {
  size_t size = 48;
  void* priv = nullptr;
  int profiler_type = kRangeProfiler;
  const char* chip = nullptr;
  const uint8_t* availability = nullptr;  // may be null for a chip that CUPTI knows
  HostObject host = nullptr;              // out
};
static_assert(sizeof(HostInitializeParams) == 48);

struct HostDeinitializeParams {
  size_t size = 24;
  void* priv = nullptr;
  HostObject host = nullptr;
};
static_assert(sizeof(HostDeinitializeParams) == 24);

struct SupportedChipsParams {
  size_t size = 32;
  void* priv = nullptr;
  size_t count = 0;                    // out
  const char* const* chips = nullptr;  // out
};
static_assert(sizeof(SupportedChipsParams) == 32);

struct AddMetricsParams {
  size_t size = 40;
  void* priv = nullptr;
  HostObject host = nullptr;
  const char** names = nullptr;
  size_t count = 0;
};
static_assert(sizeof(AddMetricsParams) == 40);

struct ConfigSizeParams {
  size_t size = 32;
  void* priv = nullptr;
  HostObject host = nullptr;
  size_t bytes = 0;  // out
};
static_assert(sizeof(ConfigSizeParams) == 32);

struct ConfigImageParams {
  size_t size = 40;
  void* priv = nullptr;
  HostObject host = nullptr;
  size_t bytes = 0;
  uint8_t* image = nullptr;  // filled
};
static_assert(sizeof(ConfigImageParams) == 40);

struct PassesParams {
  size_t size = 40;
  void* priv = nullptr;
  size_t bytes = 0;
  uint8_t* image = nullptr;
  size_t passes = 0;  // out
};
static_assert(sizeof(PassesParams) == 40);

struct EvaluateParams {
  size_t size = 72;
  void* priv = nullptr;
  HostObject host = nullptr;
  const uint8_t* counter_data = nullptr;
  size_t counter_data_bytes = 0;
  size_t range_index = 0;
  const char** names = nullptr;
  size_t count = 0;
  double* values = nullptr;  // filled
};
static_assert(sizeof(EvaluateParams) == 72);

struct RangeEnableParams {
  size_t size = 32;
  void* priv = nullptr;
  cu::Context context = nullptr;
  RangeObject range = nullptr;  // out
};
static_assert(sizeof(RangeEnableParams) == 32);

struct RangeParams {  // of Disable, Start and PopRange
  size_t size = 24;
  void* priv = nullptr;
  RangeObject range = nullptr;
};
static_assert(sizeof(RangeParams) == 24);

struct RangeStopParams {
  size_t size = 41;
  void* priv = nullptr;
  RangeObject range = nullptr;
  size_t pass_index = 0;             // out
  size_t target_nesting_level = 0;   // out
  uint8_t all_passes_submitted = 0;  // out
};
static_assert(offsetof(RangeStopParams, all_passes_submitted) + sizeof(uint8_t) == 41);

struct PushRangeParams {
  size_t size = 32;
  void* priv = nullptr;
  RangeObject range = nullptr;
  const char* name = nullptr;
};
static_assert(sizeof(PushRangeParams) == 32);

struct DecodeParams {
  size_t size = 32;
  void* priv = nullptr;
  RangeObject range = nullptr;
  size_t dropped = 0;  // out
};
static_assert(sizeof(DecodeParams) == 32);

struct CounterDataSizeParams {
  size_t size = 64;
  void* priv = nullptr;
  RangeObject range = nullptr;
  const char** names = nullptr;
  size_t count = 0;
  size_t max_ranges = 1;
  uint32_t max_tree_nodes = 1;
  size_t bytes = 0;  // out
};
static_assert(sizeof(CounterDataSizeParams) == 64);

struct CounterDataInitializeParams {
  size_t size = 40;
  void* priv = nullptr;
  RangeObject range = nullptr;
  size_t bytes = 0;
  uint8_t* image = nullptr;
};
static_assert(sizeof(CounterDataInitializeParams) == 40);

struct CounterDataInfoParams {
  size_t size = 40;
  void* priv = nullptr;
  const uint8_t* image = nullptr;
  size_t bytes = 0;
  size_t ranges = 0;  // out
};
static_assert(sizeof(CounterDataInfoParams) == 40);

struct SetConfigParams {
  size_t size = 90;
  void* priv = nullptr;
  RangeObject range = nullptr;
  size_t config_bytes = 0;
  const uint8_t* config = nullptr;
  size_t counter_data_bytes = 0;
  uint8_t* counter_data = nullptr;
  int range_mode = kUserRange;
  int replay_mode = kUserReplay;
  size_t max_ranges_per_pass = 1;
  uint16_t nesting_levels = 1;
  uint16_t min_nesting_level = 1;
  size_t pass_index = 0;
  uint16_t target_nesting_level = 1;
};
static_assert(offsetof(SetConfigParams, target_nesting_level) + sizeof(uint16_t) == 90);

struct CuptiApi {
  // kUnavailable, with advice: the library or one of its functions is missing. See
  // cuda/search_paths.h. Thread-safe.
  static ::cudaforge::Result<CuptiApi> Open(const std::vector<std::string>& search_paths);

  // Ok for 0; else kUnavailable with "what: CUPTI_ERROR_NAME", and advice if known.
  static Status Check(Result result, const char* what);

  std::string path;  // of the library, which is never unloaded

  Result (*ProfilerInitialize)(InitializeParams*) = nullptr;
  Result (*ProfilerDeInitialize)(InitializeParams*) = nullptr;
  Result (*DeviceSupported)(DeviceSupportedParams*) = nullptr;
  Result (*DeviceGetChipName)(ChipNameParams*) = nullptr;
  Result (*GetCounterAvailability)(CounterAvailabilityParams*) = nullptr;
  Result (*HostInitialize)(HostInitializeParams*) = nullptr;
  Result (*HostDeinitialize)(HostDeinitializeParams*) = nullptr;
  Result (*HostGetSupportedChips)(SupportedChipsParams*) = nullptr;
  Result (*HostConfigAddMetrics)(AddMetricsParams*) = nullptr;
  Result (*HostGetConfigImageSize)(ConfigSizeParams*) = nullptr;
  Result (*HostGetConfigImage)(ConfigImageParams*) = nullptr;
  Result (*HostGetNumOfPasses)(PassesParams*) = nullptr;
  Result (*HostEvaluateToGpuValues)(EvaluateParams*) = nullptr;
  Result (*RangeEnable)(RangeEnableParams*) = nullptr;
  Result (*RangeDisable)(RangeParams*) = nullptr;
  Result (*RangeSetConfig)(SetConfigParams*) = nullptr;
  Result (*RangeStart)(RangeParams*) = nullptr;
  Result (*RangeStop)(RangeStopParams*) = nullptr;
  Result (*RangePush)(PushRangeParams*) = nullptr;
  Result (*RangePop)(RangeParams*) = nullptr;
  Result (*RangeDecodeData)(DecodeParams*) = nullptr;
  Result (*RangeGetCounterDataSize)(CounterDataSizeParams*) = nullptr;
  Result (*RangeCounterDataInitialize)(CounterDataInitializeParams*) = nullptr;
  Result (*RangeGetCounterDataInfo)(CounterDataInfoParams*) = nullptr;
};

}  // namespace cudaforge::cupti
