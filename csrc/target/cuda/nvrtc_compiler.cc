#include "target/cuda/nvrtc_compiler.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string_view>

#include "target/cuda/compiler_output.h"
#include "target/cuda/ptx_audit.h"
#include "target/cuda/ptxas_log.h"
#include "target/cuda/search_paths.h"
#include "target/cuda/sm_arch.h"
#include "target/source_scan.h"

namespace cudaforge {
namespace {

constexpr std::string_view kIncludes[] = {"cuda_fp16.h",
                                          "cuda_bf16.h",
                                          "cuda_fp8.h",
                                          "cuda_pipeline.h",
                                          "cuda_awbarrier.h",
                                          "cuda_runtime.h",
                                          "mma.h",
                                          "cooperative_groups.h",
                                          "cstdint",
                                          "stdint.h",
                                          "cstddef",
                                          "stddef.h",
                                          "cmath",
                                          "math.h",
                                          "cfloat",
                                          "float.h",
                                          "climits",
                                          "limits.h"};
constexpr std::string_view kPrefixes[] = {"cub/", "cuda/", "cooperative_groups/"};
constexpr std::string_view kPragmas[] = {"unroll", "nounroll", "once", "nv_diag_suppress",
                                         "nv_diag_default"};
constexpr std::string_view kBanned[] = {"__has_include", "__has_include_next", "__has_embed",
                                        "_Pragma"};

// NVRTC has no C library headers. These in-memory ones let ordinary kernel text compile.
constexpr const char* kStdint =
    "#pragma once\n"
    "typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long "
    "int64_t;\n"
    "typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int "
    "uint32_t;\n"
    "typedef unsigned long long uint64_t; typedef unsigned long long uintptr_t; typedef long long "
    "intptr_t;\n";
constexpr const char* kLimits =
    "#pragma once\n"
    "#define FLT_MAX 3.402823466e+38f\n#define FLT_MIN 1.175494351e-38f\n#define FLT_EPSILON "
    "1.192092896e-07f\n"
    "#define DBL_MAX 1.7976931348623157e+308\n#define DBL_MIN 2.2250738585072014e-308\n"
    "#define DBL_EPSILON 2.2204460492503131e-16\n"
    "#define INT_MAX 2147483647\n#define INT_MIN (-INT_MAX - 1)\n#define UINT_MAX 4294967295u\n"
    "#define LLONG_MAX 9223372036854775807ll\n#define LLONG_MIN (-LLONG_MAX - 1)\n";
constexpr const char* kBuiltIn = "#pragma once\n";  // NVRTC declares this itself
constexpr const char* kHeaderNames[] = {"cstdint",  "stdint.h", "cfloat",   "float.h", "climits",
                                        "limits.h", "cstddef",  "stddef.h", "cmath",   "math.h"};
constexpr const char* kHeaders[] = {kStdint, kStdint,  kLimits,  kLimits,  kLimits,
                                    kLimits, kBuiltIn, kBuiltIn, kBuiltIn, kBuiltIn};
static_assert(std::size(kHeaderNames) == std::size(kHeaders));

class Program {
 public:
  explicit Program(const NvrtcApi& api) : api_(api) {}
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (program_ != nullptr) api_.DestroyProgram(&program_);
  }
  NvrtcProgram* out() { return &program_; }
  NvrtcProgram get() const { return program_; }

  std::string Log() const {
    return CompilerLog(program_, api_.GetProgramLogSize, api_.GetProgramLog);
  }

 private:
  const NvrtcApi& api_;
  NvrtcProgram program_ = nullptr;
};

using Clock = std::chrono::steady_clock;

int CancelAfter(void* deadline, void*) {
  return Clock::now() > *static_cast<const Clock::time_point*>(deadline) ? 1 : 0;
}

std::string VersionText(std::pair<int, int> version) {
  return std::to_string(version.first) + "." + std::to_string(version.second);
}

}  // namespace

Status CheckCudaSource(const std::string& code) {
  ScanRules rules;
  rules.includes = kIncludes;
  rules.include_prefixes = kPrefixes;
  rules.pragmas = kPragmas;
  rules.banned_words = kBanned;
  rules.allow_token_paste = true;
  return ScanSource(code, rules);
}

Result<NvrtcCompiler> NvrtcCompiler::Create(const std::vector<std::string>& search_paths) {
  CF_ASSIGN_OR_RETURN(NvrtcApi api, NvrtcApi::Open(search_paths));
  std::pair<int, int> version;
  int count = 0;
  if (api.Version(&version.first, &version.second) != 0 || api.GetNumSupportedArchs(&count) != 0 ||
      count < 1 || count > 1000) {
    return Status::Unavailable(api.path + " does not report its version and architectures");
  }
  std::vector<int> archs(static_cast<size_t>(count));
  if (api.GetSupportedArchs(archs.data()) != 0) {
    return Status::Unavailable(api.path + " does not list its architectures");
  }
  return NvrtcCompiler(std::move(api), version, std::move(archs), CudaIncludeDirs(search_paths));
}

Status NvrtcCompiler::CheckArch(const std::string& arch) const {
  CF_ASSIGN_OR_RETURN(const int number, ParseSm(arch));
  if (std::find(archs_.begin(), archs_.end(), number) != archs_.end()) return Status::Ok();
  std::string known;
  for (const int each : archs_) known += (known.empty() ? "sm_" : ", sm_") + std::to_string(each);
  return Status::Unsupported("NVRTC " + VersionText(version_) + " does not support " + arch +
                             " (it supports " + known +
                             "); update nvidia-cuda-nvrtc or the CUDA toolkit");
}

CompileResult NvrtcCompiler::Compile(const std::string& code, const std::string& arch,
                                     int timeout_ms) const {
  if (const Status status = CheckArch(arch); !status.ok()) return CompileResult::Fault(status);
  if (const Status status = CheckCudaSource(code); !status.ok())
    return CompileResult::Failure("refused: " + status.message());
  Program program(api_);
  if (const NvrtcResult error =
          api_.CreateProgram(program.out(), code.c_str(), "kernel.cu",
                             static_cast<int>(std::size(kHeaders)), kHeaders, kHeaderNames);
      error != 0) {
    return CompileResult::Fault(
        Status::Unavailable(std::string("nvrtcCreateProgram: ") + api_.GetErrorString(error)));
  }
  // modify-stack-limit would change a limit of the whole process. The architecture macros are
  // NVRTC's. fmad: as for the CPU, kernels call fma() explicitly.
  std::vector<std::string> options = {
      "-arch=" + arch,      "--std=c++20", "--fmad=false", "--modify-stack-limit=false",
      "-no-source-include", "-Xptxas",     "-v",           "-Xptxas",
      "-warn-spills"};
  // A cached cubin would come without the log, which has the register counts.
  if (version_.first >= 13) options.emplace_back("-no-cache");
  for (const std::string& folder : include_dirs_) options.push_back("-I" + folder);
  std::vector<const char*> words;
  for (const std::string& option : options) words.push_back(option.c_str());
  Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  if (api_.SetFlowCallback != nullptr) api_.SetFlowCallback(program.get(), CancelAfter, &deadline);

  const NvrtcResult error =
      api_.CompileProgram(program.get(), static_cast<int>(words.size()), words.data());
  const std::string log = program.Log();
  if (error == kNvrtcCancelled)
    return CompileResult::Failure("NVRTC was stopped after " + std::to_string(timeout_ms) +
                                  " ms\n" + log);
  if (error == kNvrtcOutOfMemory)
    return CompileResult::Fault(Status::Unavailable(api_.GetErrorString(error)));
  if (error == kNvrtcCompilationError && !log.empty())
    return CompileResult::Failure(WithoutPtxasNotes(log));
  if (error != 0)
    return CompileResult::Failure(std::string(api_.GetErrorString(error)) + "\n" + log);
  const std::string ptx = CompilerLog(program.get(), api_.GetPtxSize, api_.GetPtx);
  if (ptx.empty()) return CompileResult::Failure("NVRTC gave no PTX of at most 16 MiB");
  if (const Status status = AuditPtx(ptx); !status.ok())
    return CompileResult::Failure("refused: " + status.message());
  return CompiledCubin("NVRTC", arch, log, program.get(), api_.GetCubinSize, api_.GetCubin);
}

}  // namespace cudaforge
