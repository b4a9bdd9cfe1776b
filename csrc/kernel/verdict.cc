#include "kernel/verdict.h"

namespace cudaforge {
namespace {

constexpr std::string_view kNoVerdict = "unknown";  // after the last

Result<VerdictKind> ParseVerdictKind(std::string_view name) {
  for (int i = 0;; ++i) {
    const auto kind = static_cast<VerdictKind>(i);
    const std::string_view known = VerdictName(kind);
    if (known == kNoVerdict) break;
    if (known == name) return kind;
  }
  return Status::InvalidArgument("no verdict is called \"" + std::string(name.substr(0, 40)) +
                                 "\"");
}

}  // namespace

std::string_view VerdictName(VerdictKind kind) {
  switch (kind) {
    case VerdictKind::kAccepted:
      return "accepted";
    case VerdictKind::kCompileError:
      return "compile_error";
    case VerdictKind::kRefused:
      return "refused";
    case VerdictKind::kLaunchError:
      return "launch_error";
    case VerdictKind::kTimeout:
      return "timeout";
    case VerdictKind::kCrashed:
      return "crashed";
    case VerdictKind::kMemoryFault:
      return "memory_fault";
    case VerdictKind::kWrongShape:
      return "wrong_shape";
    case VerdictKind::kWrongValues:
      return "wrong_values";
    case VerdictKind::kModifiedInput:
      return "modified_input";
    case VerdictKind::kImpossibleTime:
      return "impossible_time";
    case VerdictKind::kTooSlow:
      return "too_slow";
    case VerdictKind::kNotJudged:
      return "not_judged";
  }
  return kNoVerdict;
}

Json Verdict::ToJson() const {
  return {{"verdict", VerdictName(kind)}, {"message", message}, {"evidence", evidence}};
}

Result<Verdict> Verdict::FromJson(const Json& json) {
  Verdict verdict;
  CF_ASSIGN_OR_RETURN(const std::string name, JsonString(json, "verdict"));
  CF_ASSIGN_OR_RETURN(verdict.kind, ParseVerdictKind(name));
  CF_ASSIGN_OR_RETURN(verdict.message, JsonString(json, "message"));
  CF_ASSIGN_OR_RETURN(verdict.evidence, JsonField(json, "evidence"));
  if (!verdict.evidence.is_object()) return Status::InvalidArgument("evidence: expected an object");
  return verdict;
}

}  // namespace cudaforge
