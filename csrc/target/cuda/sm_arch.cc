#include "target/cuda/sm_arch.h"

#include <charconv>

namespace cudaforge {

std::string ArchOf(int major, int minor) {
  return "sm_" + std::to_string(major * 10 + minor) + (major == 9 || major == 10 ? "a" : "");
}

Result<int> ParseSm(std::string_view arch) {
  const Status invalid = Status::InvalidArgument(
      "'" + std::string(arch) + "' is no architecture; expected sm_80, sm_90a, ...");
  if (!arch.starts_with("sm_")) return invalid;
  std::string_view digits = arch.substr(3);
  if (digits.ends_with('a') || digits.ends_with('f')) digits.remove_suffix(1);
  if (digits.starts_with('-')) return invalid;  // from_chars accepts a sign
  int number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || rest != end) return invalid;
  return number;
}

}  // namespace cudaforge
