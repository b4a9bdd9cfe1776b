#include "llm/fences.h"

#include <algorithm>

namespace cudaforge {
namespace {

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// A line that could open or close a block: `count` characters `mark`, then `rest`.
struct FenceLine {
  char mark = 0;
  size_t count = 0;  // 0: no fence
  std::string_view rest;
};

FenceLine ReadFenceLine(std::string_view line) {
  const size_t indent = line.find_first_not_of(' ');
  if (indent == std::string_view::npos || indent > 3) return {};
  line.remove_prefix(indent);
  if (line[0] != '`' && line[0] != '~') return {};
  const size_t count = std::min(line.find_first_not_of(line[0]), line.size());
  if (count < 3) return {};
  return {line[0], count, Trimmed(line.substr(count))};
}

}  // namespace

std::vector<Fence> FindFences(std::string_view text) {
  std::vector<Fence> fences;
  FenceLine open;    // of the current block
  size_t begin = 0;  // of its body
  for (size_t at = 0; at < text.size();) {
    const size_t feed = text.find('\n', at);
    const size_t next = feed == std::string_view::npos ? text.size() : feed + 1;
    const FenceLine line = ReadFenceLine(text.substr(at, next - at));
    if (open.count > 0) {
      if (line.mark == open.mark && line.count >= open.count && line.rest.empty()) {
        fences.push_back({open.rest, text.substr(begin, at - begin), true});
        open = {};
      }
    } else if (line.count > 0 &&
               (line.mark == '~' || line.rest.find('`') == std::string_view::npos)) {
      open = line;  // backticks after it make it inline code
      begin = next;
    }
    at = next;
  }
  if (open.count > 0) fences.push_back({open.rest, text.substr(begin), false});
  return fences;
}

std::string FirstWord(const Fence& fence) {
  std::string word(fence.info.substr(0, fence.info.find_first_of(" \t{,:")));
  for (char& c : word) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return word;
}

}  // namespace cudaforge
