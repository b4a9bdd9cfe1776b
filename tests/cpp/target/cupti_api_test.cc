#include "target/cuda/cupti_api.h"

#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "base/subprocess.h"
#include "target/cpu/cpu_compiler.h"
#include "target/cuda/search_paths.h"

namespace cudaforge {
namespace {

// {NVIDIA's name, its size, {its members, our offsets}}
struct Layout {
  const char* name;
  size_t size;
  std::vector<std::pair<const char*, size_t>> members;
};

#define AT(type, member) offsetof(cupti::type, member)
std::vector<Layout> Layouts() {
  using namespace cupti;  // NOLINT(google-build-using-namespace): structures alone
  return {
      {"CUpti_Profiler_Initialize_Params", InitializeParams().size, {}},
      {"CUpti_Profiler_DeInitialize_Params", InitializeParams().size, {}},
      {"CUpti_Profiler_DeviceSupported_Params",
       DeviceSupportedParams().size,
       {{"cuDevice", AT(DeviceSupportedParams, device)},
        {"isSupported", AT(DeviceSupportedParams, supported)},
        {"architecture", AT(DeviceSupportedParams, architecture)},
        {"vGpu", AT(DeviceSupportedParams, vgpu)},
        {"confidentialCompute", AT(DeviceSupportedParams, confidential_compute)},
        {"wsl", AT(DeviceSupportedParams, wsl)},
        {"api", AT(DeviceSupportedParams, api)}}},
      {"CUpti_Device_GetChipName_Params",
       ChipNameParams().size,
       {{"deviceIndex", AT(ChipNameParams, device_index)},
        {"pChipName", AT(ChipNameParams, chip)}}},
      {"CUpti_Profiler_GetCounterAvailability_Params",
       CounterAvailabilityParams().size,
       {{"ctx", AT(CounterAvailabilityParams, context)},
        {"counterAvailabilityImageSize", AT(CounterAvailabilityParams, image_bytes)},
        {"pCounterAvailabilityImage", AT(CounterAvailabilityParams, image)}}},
      {"CUpti_Profiler_Host_Initialize_Params",
       HostInitializeParams().size,
       {{"profilerType", AT(HostInitializeParams, profiler_type)},
        {"pChipName", AT(HostInitializeParams, chip)},
        {"pCounterAvailabilityImage", AT(HostInitializeParams, availability)},
        {"pHostObject", AT(HostInitializeParams, host)}}},
      {"CUpti_Profiler_Host_Deinitialize_Params",
       HostDeinitializeParams().size,
       {{"pHostObject", AT(HostDeinitializeParams, host)}}},
      {"CUpti_Profiler_Host_GetSupportedChips_Params",
       SupportedChipsParams().size,
       {{"numChips", AT(SupportedChipsParams, count)},
        {"ppChipNames", AT(SupportedChipsParams, chips)}}},
      {"CUpti_Profiler_Host_ConfigAddMetrics_Params",
       AddMetricsParams().size,
       {{"pHostObject", AT(AddMetricsParams, host)},
        {"ppMetricNames", AT(AddMetricsParams, names)},
        {"numMetrics", AT(AddMetricsParams, count)}}},
      {"CUpti_Profiler_Host_GetConfigImageSize_Params",
       ConfigSizeParams().size,
       {{"pHostObject", AT(ConfigSizeParams, host)},
        {"configImageSize", AT(ConfigSizeParams, bytes)}}},
      {"CUpti_Profiler_Host_GetConfigImage_Params",
       ConfigImageParams().size,
       {{"pHostObject", AT(ConfigImageParams, host)},
        {"configImageSize", AT(ConfigImageParams, bytes)},
        {"pConfigImage", AT(ConfigImageParams, image)}}},
      {"CUpti_Profiler_Host_GetNumOfPasses_Params",
       PassesParams().size,
       {{"configImageSize", AT(PassesParams, bytes)},
        {"pConfigImage", AT(PassesParams, image)},
        {"numOfPasses", AT(PassesParams, passes)}}},
      {"CUpti_Profiler_Host_EvaluateToGpuValues_Params",
       EvaluateParams().size,
       {{"pHostObject", AT(EvaluateParams, host)},
        {"pCounterDataImage", AT(EvaluateParams, counter_data)},
        {"counterDataImageSize", AT(EvaluateParams, counter_data_bytes)},
        {"rangeIndex", AT(EvaluateParams, range_index)},
        {"ppMetricNames", AT(EvaluateParams, names)},
        {"numMetrics", AT(EvaluateParams, count)},
        {"pMetricValues", AT(EvaluateParams, values)}}},
      {"CUpti_RangeProfiler_Enable_Params",
       RangeEnableParams().size,
       {{"ctx", AT(RangeEnableParams, context)},
        {"pRangeProfilerObject", AT(RangeEnableParams, range)}}},
      {"CUpti_RangeProfiler_Disable_Params",
       RangeParams().size,
       {{"pRangeProfilerObject", AT(RangeParams, range)}}},
      {"CUpti_RangeProfiler_Start_Params",
       RangeParams().size,
       {{"pRangeProfilerObject", AT(RangeParams, range)}}},
      {"CUpti_RangeProfiler_PopRange_Params",
       RangeParams().size,
       {{"pRangeProfilerObject", AT(RangeParams, range)}}},
      {"CUpti_RangeProfiler_Stop_Params",
       RangeStopParams().size,
       {{"pRangeProfilerObject", AT(RangeStopParams, range)},
        {"passIndex", AT(RangeStopParams, pass_index)},
        {"targetNestingLevel", AT(RangeStopParams, target_nesting_level)},
        {"isAllPassSubmitted", AT(RangeStopParams, all_passes_submitted)}}},
      {"CUpti_RangeProfiler_PushRange_Params",
       PushRangeParams().size,
       {{"pRangeProfilerObject", AT(PushRangeParams, range)},
        {"pRangeName", AT(PushRangeParams, name)}}},
      {"CUpti_RangeProfiler_DecodeData_Params",
       DecodeParams().size,
       {{"pRangeProfilerObject", AT(DecodeParams, range)},
        {"numOfRangeDropped", AT(DecodeParams, dropped)}}},
      {"CUpti_RangeProfiler_GetCounterDataSize_Params",
       CounterDataSizeParams().size,
       {{"pRangeProfilerObject", AT(CounterDataSizeParams, range)},
        {"pMetricNames", AT(CounterDataSizeParams, names)},
        {"numMetrics", AT(CounterDataSizeParams, count)},
        {"maxNumOfRanges", AT(CounterDataSizeParams, max_ranges)},
        {"maxNumRangeTreeNodes", AT(CounterDataSizeParams, max_tree_nodes)},
        {"counterDataSize", AT(CounterDataSizeParams, bytes)}}},
      {"CUpti_RangeProfiler_CounterDataImage_Initialize_Params",
       CounterDataInitializeParams().size,
       {{"pRangeProfilerObject", AT(CounterDataInitializeParams, range)},
        {"counterDataSize", AT(CounterDataInitializeParams, bytes)},
        {"pCounterData", AT(CounterDataInitializeParams, image)}}},
      {"CUpti_RangeProfiler_GetCounterDataInfo_Params",
       CounterDataInfoParams().size,
       {{"pCounterDataImage", AT(CounterDataInfoParams, image)},
        {"counterDataImageSize", AT(CounterDataInfoParams, bytes)},
        {"numTotalRanges", AT(CounterDataInfoParams, ranges)}}},
      {"CUpti_RangeProfiler_SetConfig_Params",
       SetConfigParams().size,
       {{"pRangeProfilerObject", AT(SetConfigParams, range)},
        {"configSize", AT(SetConfigParams, config_bytes)},
        {"pConfig", AT(SetConfigParams, config)},
        {"counterDataImageSize", AT(SetConfigParams, counter_data_bytes)},
        {"pCounterDataImage", AT(SetConfigParams, counter_data)},
        {"range", AT(SetConfigParams, range_mode)},
        {"replayMode", AT(SetConfigParams, replay_mode)},
        {"maxRangesPerPass", AT(SetConfigParams, max_ranges_per_pass)},
        {"numNestingLevels", AT(SetConfigParams, nesting_levels)},
        {"minNestingLevel", AT(SetConfigParams, min_nesting_level)},
        {"passIndex", AT(SetConfigParams, pass_index)},
        {"targetNestingLevel", AT(SetConfigParams, target_nesting_level)}}},
  };
}
#undef AT

std::string HeaderFolder() {
  for (const std::string& folder : CudaIncludeDirs({})) {
    if (PathExists(folder + "/cupti_range_profiler.h")) return folder;
  }
  return "";
}

// Compiles against NVIDIA's headers to check every size, offset and value.
TEST(CuptiApi, LayoutsMatchTheHeaders) {
  const std::string headers = HeaderFolder();
  if (headers.empty()) GTEST_SKIP() << "needs CUPTI's headers: set CUDAFORGE_CUDA_PATH";
  std::string code =
      "#include <cupti_profiler_host.h>\n#include <cupti_range_profiler.h>\n"
      "#include <cupti_target.h>\n";
  const auto same = [&](const std::string& expression, size_t value) {
    code += "static_assert(" + expression + " == " + std::to_string(value) + ");\n";
  };
  for (const Layout& layout : Layouts()) {
    const std::string name = layout.name;
    // A newer CUPTI adds members at the end, and accepts older sizes.
    code += "static_assert(" + name + "_STRUCT_SIZE >= " + std::to_string(layout.size) + ");\n";
    same("offsetof(" + name + ", structSize)", 0);
    same("offsetof(" + name + ", pPriv)", 8);
    for (const auto& [member, offset] : layout.members) {
      same("offsetof(" + name + ", " + member + ")", offset);
    }
  }
  same("CUPTI_PROFILER_TYPE_RANGE_PROFILER", cupti::kRangeProfiler);
  same("CUPTI_PROFILER_RANGE_PROFILING", cupti::kRangeProfiling);
  same("CUPTI_PROFILER_CONFIGURATION_SUPPORTED", cupti::kSupported);
  same("CUPTI_UserRange", cupti::kUserRange);
  same("CUPTI_UserReplay", cupti::kUserReplay);
  for (int result = 1; result < 1000; ++result) {
    const std::string error = cupti::CuptiApi::Check(result, "").message().substr(2);
    if (error.starts_with("CUPTI_ERROR_")) same(error.substr(0, error.find(';')), result);
  }
  const TempDir folder = TempDir::Create("cudaforge-cupti-test-").value();
  ASSERT_TRUE(WriteFileAtomic(folder.path() + "/layouts.cc", code).ok());
  const auto run = RunProcess({FindHostCompiler("").value(), "-std=c++20", "-fsyntax-only",
                               "-isystem", headers, folder.path() + "/layouts.cc"},
                              {.join_errors = true});
  ASSERT_TRUE(run.ok()) << run.status().ToString();
  EXPECT_EQ(run->exit_code, 0) << run->output;
}

TEST(CuptiApi, ErrorsAreNamedWithAdvice) {
  using cupti::CuptiApi;
  EXPECT_TRUE(CuptiApi::Check(0, "nothing").ok());
  const Status refused = CuptiApi::Check(cupti::kInsufficientPrivileges, "asking");
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  for (const char* word : {"asking", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", "NVreg_Restrict"}) {
    EXPECT_NE(refused.message().find(word), std::string::npos) << refused.message();
  }
  EXPECT_NE(CuptiApi::Check(cupti::kHardwareBusy, "asking").message().find("dcgmi"),
            std::string::npos);
  EXPECT_EQ(CuptiApi::Check(12345, "asking").message(), "asking: CUPTI error 12345");
}

}  // namespace
}  // namespace cudaforge
