// The texts under csrc/forge/prompts and csrc/forge/knowledge, which CMake makes part of the
// program (embed.cmake): no file is read at run time.
#pragma once

#include <span>
#include <string_view>

namespace cudaforge {

struct EmbeddedText {
  std::string_view path;  // "prompts/coder_seed.mustache", "knowledge/contract/cuda.md"
  std::string_view text;
};

// Sorted by path.
std::span<const EmbeddedText> EmbeddedTexts();

}  // namespace cudaforge
