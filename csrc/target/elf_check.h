// Checks kernel binaries. Before loading: glibc and the CUDA driver trust the headers' offsets, and
// a truncated file would crash them. After compiling: a kernel that keeps state between calls, or
// can query where it runs, might be correct only in the verifier.
#pragma once

#include <string_view>

#include "base/status.h"

namespace cudaforge {

// kCorruption unless `image` is a 64-bit little-endian ELF file whose headers, and the ranges they
// describe, are inside it. Does not check the content.
Status CheckElfBounds(std::string_view image);

// kInvalidArgument: a host shared object with writable memory after loading (static, global and
// thread_local variables), with code that runs at load or unload (initialisers, indirect
// functions), or with calls other than to <cmath> and <cstring>. kCorruption: as CheckElfBounds, or
// no section headers.
Status CheckCpuLibrary(std::string_view image);
// kInvalidArgument: a cubin with zero-initialised memory that outlives a launch (__device__ and
// static variables). Other variables pass, because constants and CUDA's own tables look the same.
// kCorruption: as CheckElfBounds.
Status CheckCubin(std::string_view image);

}  // namespace cudaforge
