// The texts under csrc/forge/prompts and csrc/forge/knowledge, which CMake compiles in
// (embed.cmake), so that no file is read at run time.
#pragma once

#include <span>

#include "base/embedded_text.h"

namespace cudaforge {

// Sorted by path.
std::span<const EmbeddedText> EmbeddedTexts();

}  // namespace cudaforge
