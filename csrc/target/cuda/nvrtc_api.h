// NVRTC as a table of function pointers, opened at run time. Declares the used parts of nvrtc.h, so
// that a build needs no CUDA toolkit.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"

namespace cudaforge {

using NvrtcResult = int;  // 0: success
inline constexpr NvrtcResult kNvrtcOutOfMemory = 1;
inline constexpr NvrtcResult kNvrtcCompilationError = 6;
inline constexpr NvrtcResult kNvrtcCancelled = 16;
using NvrtcProgram = struct NvrtcProgramTag*;

struct NvrtcApi {
  // kUnavailable, with advice: the library or one of its functions is missing. See
  // cuda/search_paths.h.
  static Result<NvrtcApi> Open(const std::vector<std::string>& search_paths);

  std::string path;  // of the library, which is never unloaded

  NvrtcResult (*Version)(int* major, int* minor) = nullptr;
  NvrtcResult (*GetNumSupportedArchs)(int* count) = nullptr;
  NvrtcResult (*GetSupportedArchs)(int* archs) = nullptr;
  NvrtcResult (*CreateProgram)(NvrtcProgram* program, const char* source, const char* name,
                               int num_headers, const char* const* headers,
                               const char* const* include_names) = nullptr;
  NvrtcResult (*DestroyProgram)(NvrtcProgram* program) = nullptr;
  NvrtcResult (*CompileProgram)(NvrtcProgram program, int num_options,
                                const char* const* options) = nullptr;
  NvrtcResult (*GetProgramLogSize)(NvrtcProgram program, size_t* bytes) = nullptr;
  NvrtcResult (*GetProgramLog)(NvrtcProgram program, char* log) = nullptr;
  NvrtcResult (*GetPtxSize)(NvrtcProgram program, size_t* bytes) = nullptr;
  NvrtcResult (*GetPtx)(NvrtcProgram program, char* ptx) = nullptr;
  NvrtcResult (*GetCubinSize)(NvrtcProgram program, size_t* bytes) = nullptr;
  NvrtcResult (*GetCubin)(NvrtcProgram program, char* cubin) = nullptr;
  const char* (*GetErrorString)(NvrtcResult result) = nullptr;
  // nullptr before CUDA 12.8. The callback returns 1 to cancel the compilation.
  NvrtcResult (*SetFlowCallback)(NvrtcProgram program, int (*callback)(void*, void*),
                                 void* payload) = nullptr;
};

}  // namespace cudaforge
