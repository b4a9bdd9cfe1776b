#include "forge/agent/device_code.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "generators/tiles/device_texts.h"

namespace cudaforge {
namespace {

constexpr std::string_view kFolder = "device/";

// Files that need no constants of a generator.
constexpr std::string_view kForAgents[] = {"device/async_copy.cuh", "device/barrier.cuh",
                                           "device/bulk_copy.cuh",  "device/matrices.cuh",
                                           "device/mma.cuh",        "device/tensor_copy.cuh",
                                           "device/wgmma.cuh"};

// The path in `#include "PATH"`; empty for any other line.
std::string_view IncludedPath(std::string_view line) {
  const auto skip = [&](std::string_view prefix) {
    const size_t start = line.find_first_not_of(" \t");
    if (start == std::string_view::npos || !line.substr(start).starts_with(prefix)) return false;
    line.remove_prefix(start + prefix.size());
    return true;
  };
  if (!skip("#") || !skip("include") || !skip("\"")) return {};
  const size_t end = line.find('"');
  return end == std::string_view::npos ? std::string_view() : line.substr(0, end);
}

}  // namespace

Result<std::string> WithDeviceCode(std::string_view source) {
  std::string text;
  std::set<std::string_view> included;
  for (size_t at = 0; at < source.size();) {
    const size_t end = std::min(source.find('\n', at), source.size());
    const std::string_view line = source.substr(at, end - at);
    at = end + 1;
    const std::string_view path = IncludedPath(line);
    if (!path.starts_with(kFolder)) {
      text += line;
      if (end < source.size()) text += '\n';
      continue;
    }
    if (!IsIn(path, kForAgents)) {
      std::string known;
      for (std::string_view name : kForAgents) known += Cat(known.empty() ? "" : ", ", name);
      return Status::InvalidArgument("there is no \"" + Printable(path, 80) +
                                     "\" to include; there are: " + known);
    }
    if (included.insert(path).second) text += tiles::DeviceText({path});
  }
  return text;
}

}  // namespace cudaforge
