#include "verify/messages.h"

#include <cmath>
#include <utility>

namespace cudaforge {
namespace {

// Leaves out infinity, which JSON does not have.
void PutNumber(const char* field, double value, Json* json) {
  if (std::isfinite(value)) (*json)[field] = value;
}

double NumberOr(const Json& json, const char* field, double otherwise) {
  const Result<double> value = JsonDouble(json, field);
  return value.ok() ? *value : otherwise;
}

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

Json RequestToJson(const EvaluationRequest& request) {
  Json json = {{"id", request.id},
               {"candidate", request.candidate.ToJson()},
               {"proof", request.depth == Depth::kProof}};
  PutNumber("best_ns", request.best_ns.value_or(kNever), &json);
  PutNumber("end", request.end, &json);
  PutNumber("screen_end", request.screen_end, &json);
  PutNumber("screen_end_right", request.screen_end_right, &json);
  if (request.compiled.has_value()) {
    json["compiled"] = {{"ok", request.compiled->ok},
                        {"log", request.compiled->log},
                        {"resources", request.compiled->resources}};
  }
  return LenientCopy(json);  // logs may hold invalid UTF-8
}

Result<EvaluationRequest> RequestFromJson(const Json& json, std::string binary) {
  EvaluationRequest request;
  CF_ASSIGN_OR_RETURN(const int64_t id, JsonInt(json, "id"));
  request.id = static_cast<int>(id);
  CF_ASSIGN_OR_RETURN(const Json candidate, JsonField(json, "candidate"));
  CF_ASSIGN_OR_RETURN(request.candidate, Candidate::FromJson(candidate));
  CF_ASSIGN_OR_RETURN(const bool proof, JsonBool(json, "proof"));
  request.depth = proof ? Depth::kProof : Depth::kScreen;
  if (const double best = NumberOr(json, "best_ns", kNever); best < kNever) request.best_ns = best;
  request.end = NumberOr(json, "end", kNever);
  request.screen_end = NumberOr(json, "screen_end", kNever);
  request.screen_end_right = NumberOr(json, "screen_end_right", kNever);
  if (const Json& compiled = MemberOrNull(json, "compiled"); !compiled.is_null()) {
    CompileResult& result = request.compiled.emplace();
    CF_ASSIGN_OR_RETURN(result.ok, JsonBool(compiled, "ok"));
    CF_ASSIGN_OR_RETURN(result.log, JsonString(compiled, "log"));
    result.resources = MemberOrNull(compiled, "resources");
    result.binary = std::move(binary);
  }
  return request;
}

Json SpentToJson(const PhaseSeconds& spent) {
  return {{"inputs", spent.inputs},
          {"compile", spent.compile},
          {"run", spent.run},
          {"compare", spent.compare}};
}

Result<PhaseSeconds> SpentFromJson(const Json& json) {
  PhaseSeconds spent;
  CF_ASSIGN_OR_RETURN(spent.inputs, JsonDouble(json, "inputs"));
  CF_ASSIGN_OR_RETURN(spent.compile, JsonDouble(json, "compile"));
  CF_ASSIGN_OR_RETURN(spent.run, JsonDouble(json, "run"));
  CF_ASSIGN_OR_RETURN(spent.compare, JsonDouble(json, "compare"));
  return spent;
}

Json EvaluationToJson(const Evaluation& evaluation) {
  const Findings& findings = evaluation.findings;
  Json json = {
      {"verdict", findings.verdict.ToJson()}, {"resources", findings.resources},
      {"profile", findings.profile},          {"derived", findings.derived},
      {"seconds", evaluation.seconds},        {"device_seconds", evaluation.device_seconds}};
  if (findings.ns.has_value()) PutNumber("ns", *findings.ns, &json);
  if (findings.prepare_ns > 0) PutNumber("prepare_ns", findings.prepare_ns, &json);
  if (evaluation.kernel.has_value()) {
    json["kernel"] = {{"ns", evaluation.kernel->ns},
                      {"verification", evaluation.kernel->verification}};
  }
  return LenientCopy(json);  // logs may hold invalid UTF-8
}

Result<Evaluation> EvaluationFromJson(const Json& json, const Candidate& candidate,
                                      std::string binary) {
  Evaluation evaluation;
  CF_ASSIGN_OR_RETURN(const Json verdict, JsonField(json, "verdict"));
  CF_ASSIGN_OR_RETURN(evaluation.findings.verdict, Verdict::FromJson(verdict));
  if (json.contains("ns")) {
    CF_ASSIGN_OR_RETURN(evaluation.findings.ns, JsonDouble(json, "ns"));
  }
  evaluation.findings.prepare_ns = NumberOr(json, "prepare_ns", 0);
  evaluation.findings.resources = MemberOrNull(json, "resources");
  evaluation.findings.profile = MemberOrNull(json, "profile");
  evaluation.findings.derived = MemberOrNull(json, "derived");
  CF_ASSIGN_OR_RETURN(evaluation.seconds, JsonDouble(json, "seconds"));
  CF_ASSIGN_OR_RETURN(evaluation.device_seconds, JsonDouble(json, "device_seconds"));
  if (const Json& kernel = MemberOrNull(json, "kernel"); !kernel.is_null()) {
    CF_ASSIGN_OR_RETURN(const double ns, JsonDouble(kernel, "ns"));
    evaluation.kernel =
        ProvenKernel{candidate, std::move(binary), ns, MemberOrNull(kernel, "verification"),
                     evaluation.findings.prepare_ns};
  }
  return evaluation;
}

void PutError(const Status& status, Json* body) {
  (*body)["code"] = StatusCodeName(status.code());
  (*body)["error"] = status.message();
}

Status ErrorIn(const Json& body) {
  const Result<std::string> name = JsonString(body, "code"), error = JsonString(body, "error");
  if (!name.ok() || !error.ok()) return Status::Internal("the verifier gave no reason");
  return {ParseStatusCode(*name).value_or(StatusCode::kInternal), *error};
}

}  // namespace cudaforge
