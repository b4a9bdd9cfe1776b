// Fenced blocks in Markdown (CommonMark, section 4.5), as models write them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cudaforge {

struct Fence {
  std::string_view info;  // the trimmed text after the opening fence: "cuda"
  std::string_view body;  // the lines between, including line ends; points into the text
  bool closed = false;    // false only for the last fence
};

// Returns the fenced blocks of `text`, in order. A fence has three or more backticks or tildes,
// after at most three blanks. The block ends at a line with at least as many of the same character
// and nothing else, or at the end. Linear time.
std::vector<Fence> FindFences(std::string_view text);

// The first word after the opening fence, ASCII lower case: "cuda"; may be empty.
std::string FirstWord(const Fence& fence);

}  // namespace cudaforge
