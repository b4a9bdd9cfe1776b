// What a kernel binary is made of. Before a loader trusts its sizes: glibc and the CUDA driver both
// read where the headers point, and a file that was cut short would end in a signal. And after it
// was compiled: a kernel that can remember an earlier call, or ask where it runs, may be right in
// the verifier alone.
#pragma once

#include <string_view>

#include "base/status.h"

namespace cudaforge {

// kCorruption unless `image` is a 64-bit little-endian ELF file whose program headers, section
// headers and the ranges that they name all lie inside it. Says nothing about the content.
Status CheckElfBounds(std::string_view image);

// kInvalidArgument where a shared object of the host has memory that it may write to after it was
// loaded (static, global and thread_local variables, and whatever else of a writable segment the
// loader does not make read-only), code that runs when it is loaded or unloaded (initialisers,
// indirect functions), or calls functions other than
// those of <cmath> and <cstring>. kCorruption as CheckElfBounds, and without section headers.
Status CheckCpuLibrary(std::string_view image);
// kInvalidArgument where a cubin has memory that begins as zeros and outlives a launch (__device__
// and static variables). Variables with other values are let through: constants and the tables of
// CUDA's own maths look the same. kCorruption as CheckElfBounds.
Status CheckCubin(std::string_view image);

}  // namespace cudaforge
