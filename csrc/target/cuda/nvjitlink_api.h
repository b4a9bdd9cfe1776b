// nvJitLink as a table of function pointers, opened at run time. Declares the used parts of
// nvJitLink.h, so that a build needs no CUDA toolkit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace cudaforge {

using NvJitLinkResult = int;  // 0: success
using NvJitLinkHandle = struct NvJitLinkTag*;
inline constexpr int kNvJitLinkInputPtx = 2;

struct NvJitLinkApi {
  // kUnavailable, with advice: the library or one of its functions is missing. See
  // cuda/search_paths.h.
  static Result<NvJitLinkApi> Open(const std::vector<std::string>& search_paths);

  std::string path;  // of the library, which is never unloaded

  NvJitLinkResult (*Create)(NvJitLinkHandle* handle, uint32_t num_options,
                            const char* const* options) = nullptr;
  NvJitLinkResult (*Destroy)(NvJitLinkHandle* handle) = nullptr;
  NvJitLinkResult (*AddData)(NvJitLinkHandle handle, int input_type, const void* data, size_t bytes,
                             const char* name) = nullptr;
  NvJitLinkResult (*Complete)(NvJitLinkHandle handle) = nullptr;
  NvJitLinkResult (*GetLinkedCubinSize)(NvJitLinkHandle handle, size_t* bytes) = nullptr;
  NvJitLinkResult (*GetLinkedCubin)(NvJitLinkHandle handle, void* cubin) = nullptr;
  NvJitLinkResult (*GetErrorLogSize)(NvJitLinkHandle handle, size_t* bytes) = nullptr;
  NvJitLinkResult (*GetErrorLog)(NvJitLinkHandle handle, char* log) = nullptr;
  NvJitLinkResult (*GetInfoLogSize)(NvJitLinkHandle handle, size_t* bytes) = nullptr;
  NvJitLinkResult (*GetInfoLog)(NvJitLinkHandle handle, char* log) = nullptr;
  // nullptr in the first releases of CUDA 12.
  NvJitLinkResult (*Version)(unsigned* major, unsigned* minor) = nullptr;
};

}  // namespace cudaforge
