// A look at a kernel binary before a loader trusts its sizes: glibc and the CUDA driver both read
// where the headers point, and a file that was cut short would end in a signal.
#pragma once

#include <string_view>

#include "base/status.h"

namespace cudaforge {

// kCorruption unless `image` is a 64-bit little-endian ELF file whose program headers, section
// headers and the ranges that they name all lie inside it. Says nothing about the content.
Status CheckElfBounds(std::string_view image);

}  // namespace cudaforge
