// A text file of the source tree that CMake compiles in (csrc/embed.cmake), so that no file is read
// at run time.
#pragma once

#include <string_view>

namespace cudaforge {

struct EmbeddedText {
  std::string_view path;  // "prompts/coder_seed.mustache"
  std::string_view text;
};

}  // namespace cudaforge
