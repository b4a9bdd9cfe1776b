#include "target/cuda/ptxas_log.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>

namespace cudaforge {
namespace {

// The integer right before `unit`, as in "Used 32 registers"; 0 if there is none.
int64_t NumberBefore(std::string_view line, std::string_view unit) {
  const size_t at = line.find(unit);
  if (at == std::string_view::npos) return 0;
  size_t begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int64_t value = 0;
  std::from_chars(line.data() + begin, line.data() + at, value);
  return value;
}

// The text between the first pair of single quotes.
std::string_view Quoted(std::string_view line) {
  const size_t begin = line.find('\'');
  if (begin == std::string_view::npos) return {};
  const size_t end = line.find('\'', begin + 1);
  return end == std::string_view::npos ? std::string_view()
                                       : line.substr(begin + 1, end - begin - 1);
}

// Calls visit(line) for each line, without its end.
template <typename Visit>
void ForEachLine(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

bool IsNote(std::string_view line) {
  return line.starts_with("ptxas info") || line.find("bytes stack frame") != std::string_view::npos;
}

}  // namespace

Json ParsePtxasLog(std::string_view log) {
  Json kernels = Json::object();
  std::string current;
  ForEachLine(log, [&](std::string_view line) {
    if (line.find("Compiling entry function") != std::string_view::npos) {
      current = Quoted(line);
      if (current.empty()) return;
      kernels[current] =
          Json{{"registers", 0}, {"spill_bytes", 0}, {"stack_bytes", 0}, {"shared_bytes", 0}};
    } else if (line.find("Function properties for") != std::string_view::npos) {
      // Also printed for device functions that were not inlined; their frames are not the kernel's.
      if (current.empty() || line.find(current) == std::string_view::npos) current.clear();
    } else if (!current.empty() && line.find("bytes stack frame") != std::string_view::npos) {
      kernels[current]["stack_bytes"] = NumberBefore(line, " bytes stack frame");
      kernels[current]["spill_bytes"] =
          NumberBefore(line, " bytes spill stores") + NumberBefore(line, " bytes spill loads");
    } else if (!current.empty() && line.find(" registers") != std::string_view::npos) {
      kernels[current]["registers"] = NumberBefore(line, " registers");
      kernels[current]["shared_bytes"] = NumberBefore(line, " bytes smem");
    }
  });
  return kernels;
}

std::string WithoutPtxasNotes(std::string_view log) {
  std::string text;
  ForEachLine(log, [&](std::string_view line) {
    if (IsNote(line)) return;
    text += line;
    text += '\n';
  });
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace cudaforge
