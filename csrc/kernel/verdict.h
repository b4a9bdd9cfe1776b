// Verdict: the result of judging a candidate. A value, never an exception.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace cudaforge {

enum class VerdictKind {
  kAccepted,
  kCompileError,
  kRefused,
  kLaunchError,
  kTimeout,
  kCrashed,
  kMemoryFault,
  kWrongShape,
  kWrongValues,
  kModifiedInput,
  kImpossibleTime,  // faster than the device's memory allows: not all of the work was timed
  kTooSlow,
  kNotJudged,  // never run, or not on every input set; the message says why
};

std::string_view VerdictName(VerdictKind kind);  // "accepted", "compile_error", ...

struct Verdict {
  VerdictKind kind = VerdictKind::kAccepted;
  std::string message;  // one paragraph, for the author of the candidate
  // Numbers: the worst element, errors against float64, bytes changed outside a buffer, log.
  Json evidence = Json::object();

  bool accepted() const { return kind == VerdictKind::kAccepted; }
  Json ToJson() const;
  // Parses untrusted text. kInvalidArgument names the bad field.
  static Result<Verdict> FromJson(const Json& json);
};

}  // namespace cudaforge
