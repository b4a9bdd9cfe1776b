#include "base/status.h"

namespace cudaforge {
namespace {

constexpr std::string_view kNoCode = "unknown status";  // after the last

}  // namespace

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kCorruption:
      return "corruption";
    case StatusCode::kIoError:
      return "I/O error";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kTimeout:
      return "timeout";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kNoMemory:
      return "no memory";
    case StatusCode::kMemoryFault:
      return "memory fault";
    case StatusCode::kInternal:
      return "internal error";
  }
  return kNoCode;
}

std::optional<StatusCode> ParseStatusCode(std::string_view name) {
  for (int i = 0;; ++i) {
    const auto code = static_cast<StatusCode>(i);
    const std::string_view known = StatusCodeName(code);
    if (known == kNoCode) return std::nullopt;
    if (known == name) return code;
  }
}

std::string Status::ToString() const {
  std::string text(StatusCodeName(code_));
  if (!message_.empty()) text += ": " + message_;
  return text;
}

}  // namespace cudaforge
