// The texts under csrc/forge/prompts and csrc/forge/knowledge, which CMake makes part of the
// program (embed.cmake): no file is read at run time.
#pragma once

#include <span>

#include "base/embedded_text.h"

namespace cudaforge {

// Sorted by path.
std::span<const EmbeddedText> EmbeddedTexts();

}  // namespace cudaforge
