// Fenced blocks in Markdown (CommonMark, section 4.5), as models write them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cudaforge {

struct Fence {
  std::string_view info;  // the text after the opening fence, trimmed: "cuda"
  std::string_view body;  // the lines between, line ends included; into the text given
  bool closed = false;    // false only for the last one
};

// The fenced blocks of `text`, in order: an opening fence of three or more backticks or tildes, at
// most three blanks before it; the block ends at a line with at least as many of the same character
// and nothing else, or with the text. Linear.
std::vector<Fence> FindFences(std::string_view text);

// The first word after the opening fence, ASCII in lower case: "cuda"; may be empty.
std::string FirstWord(const Fence& fence);

}  // namespace cudaforge
