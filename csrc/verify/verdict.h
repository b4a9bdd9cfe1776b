// Verdict: what became of a candidate. A value, never an exception.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace cudaforge {

enum class VerdictKind {
  kAccepted, kCompileError, kRefused, kLaunchError, kTimeout, kCrashed, kMemoryFault, kWrongShape,
  kWrongValues, kNondeterministic, kModifiedInput, kImpossibleTime, kTooSlow,
};

std::string_view VerdictName(VerdictKind kind);  // "accepted", "compile_error", ...

struct Verdict {
  VerdictKind kind = VerdictKind::kAccepted;
  std::string message;               // one paragraph, for the author of the candidate
  Json evidence = Json::object();    // numbers: worst element, errors against fp64, guard bytes hit, log

  bool accepted() const { return kind == VerdictKind::kAccepted; }
  Json ToJson() const;
};

}  // namespace cudaforge
