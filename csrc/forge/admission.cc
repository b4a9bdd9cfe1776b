#include "forge/admission.h"

#include <new>
#include <string>
#include <utility>

#include "forge/agent/memory.h"
#include "generators/generator.h"
#include "verify/evaluator.h"

namespace cudaforge {
namespace {

Status Admit(const FindBench& find, CacheRecord* record) {
  CF_ASSIGN_OR_RETURN(const OpSignature signature, OpSignature::Parse(record->signature));
  const Result<Bench> bench = find(signature.device);
  if (!bench.ok()) {
    return Status::Unsupported("made for " + record->arch +
                               ", which this machine cannot use: " + bench.status().message());
  }
  const Json& versions = bench->workshop.versions;
  const std::string& arch = bench->arch.target;
  const bool raced =
      record->has_kernel() && MemberOrNull(record->versions, "torch") == versions["torch"];
  if (!JudgedAlike(record->versions, versions) && !raced) {
    return Status::Unsupported("proven with other versions (" + record->versions.dump() +
                               ") than these (" + versions.dump() + "): forge it here");
  }
  // C++ source is rebuilt for this exact processor; a GPU kernel is tuned to its architecture.
  const bool cpu = signature.device == DeviceType::kCpu && record->arch.starts_with("cpu:");
  if (!cpu && record->arch != arch) {
    return Status::Unsupported("made for " + record->arch + "; this machine is " + arch);
  }
  if (!record->has_kernel()) {
    record->arch = arch;
    return Status::Ok();
  }
  // The verifier runs the region's ops, so only known ones are allowed.
  if (!IsAgentRegion(signature).ok()) CF_RETURN_IF_ERROR(CanGenerate(signature, arch));
  CF_ASSIGN_OR_RETURN(
      const std::unique_ptr<Evaluator> evaluator,
      bench->workshop.open(signature, 0, std::numeric_limits<double>::infinity(), nullptr));
  for (Variant& variant : record->variants) {
    CF_ASSIGN_OR_RETURN(const Json json, ParseJson(variant.candidate));
    CF_ASSIGN_OR_RETURN(const Candidate candidate, Candidate::FromJson(json));
    CF_ASSIGN_OR_RETURN(Evaluation found, ProveCandidate(*evaluator, candidate));
    if (const Verdict& verdict = found.findings.verdict; !verdict.accepted()) {
      const std::string why = std::string(VerdictName(verdict.kind)) + ": " + verdict.message;
      return Status::InvalidArgument("not proven on this machine: " + why.substr(0, 500));
    }
    variant.binary = std::move(found.kernel->binary);
    variant.verification = LenientText(found.kernel->verification);
  }
  record->arch = arch;
  record->versions = versions;
  if (!record->Serves().compiled) return Status::Ok();
  return NoteAgentRegion(*bench->workshop.store, signature, arch);
}

}  // namespace

Status AdmitRecord(const FindBench& bench, CacheRecord* record) {
  try {
    return Admit(bench, record);
  } catch (const std::bad_alloc&) {
    return Status::Unsupported("too large for the memory of this machine");
  }
}

}  // namespace cudaforge
