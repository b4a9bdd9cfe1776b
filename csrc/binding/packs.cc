#include <pybind11/stl.h>

#include <new>
#include <random>

#include "binding/errors.h"
#include "binding/module.h"
#include "binding/runtime.h"
#include "binding/text.h"
#include "binding/versions.h"
#include "cache/pack.h"
#include "cache/source_pack.h"
#include "forge/agent/memory.h"
#include "forge/forge.h"
#include "generators/generator.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

constexpr double kSecondsPerKernel = 120;

// Compiles a record's source for this machine and runs it on every input set; `record` gets the
// binary built here and this build's versions: its race, against the same torch, still counts. Of a
// record without a winner, that it is of this build and device.
Status ProveOrThrow(CacheRecord* record) {
  const bool raced =
      record->has_kernel() && MemberOrNull(record->versions, "torch") == Versions()["torch"];
  if (!JudgedByThisBuild(*record) && !raced) {
    return Status::Unsupported("judged by other versions (" + record->versions.dump() +
                               ") than these (" + Versions().dump() + "): forge it anew here");
  }
  CF_ASSIGN_OR_RETURN(const OpSignature signature, OpSignature::Parse(record->signature));
  Runtime& runtime = Runtime::Get();
  const Result<Target*> target = runtime.TargetFor(signature.device, 0);
  const std::string here =
      target.ok() ? "is " + (*target)->arch().target : "offers: " + target.status().message();
  // C++ source is built again for this very processor; a GPU kernel is tuned to its architecture.
  const bool cpu = signature.device == DeviceType::kCpu && record->arch.starts_with("cpu:");
  if (!target.ok() || (!cpu && record->arch != (*target)->arch().target)) {
    return Status::Unsupported("made for " + record->arch + "; this machine " + here);
  }
  if (!record->has_kernel()) {
    record->arch = (*target)->arch().target;
    return Status::Ok();
  }
  // The checker runs the region's ops in this process: none but those that we know.
  if (!IsAgentRegion(signature).ok())
    CF_RETURN_IF_ERROR(CanGenerate(signature, (*target)->arch().target));
  CF_ASSIGN_OR_RETURN(std::unique_ptr<RegionChecker> checker,
                      RegionChecker::Create(signature, 0, std::random_device()()));
  WorkerClient worker(runtime.Worker(signature.device, 0));
  for (Variant& variant : record->variants) {
    CF_ASSIGN_OR_RETURN(const Json json, ParseJson(variant.candidate));
    CF_ASSIGN_OR_RETURN(const Candidate candidate, Candidate::FromJson(json));
    CF_ASSIGN_OR_RETURN(Proof proof,
                        ProveCandidate(signature, candidate, worker, *checker, kSecondsPerKernel));
    if (const Verdict& verdict = proof.trial.verdict; !verdict.accepted()) {
      const std::string why = std::string(VerdictName(verdict.kind)) + ": " + verdict.message;
      return Status::InvalidArgument("not proven on this machine: " + why.substr(0, 500));
    }
    variant.binary = std::move(proof.trial.binary);
    record->verification = LenientText(proof.verification);
  }
  record->arch = (*target)->arch().target;
  record->versions = Versions();
  if (!record->Serves().compiled) return Status::Ok();
  return NoteAgentRegion(*runtime.store(), signature, record->arch);
}

Status Prove(CacheRecord* record) {
  try {
    return ProveOrThrow(record);
  } catch (const std::bad_alloc&) {
    return Status::Unsupported("too large for the memory of this machine");
  }
}

py::dict SummaryDict(const PackSummary& summary) {
  py::dict dict;
  dict["exported"] = summary.exported;
  dict["imported"] = summary.imported;
  dict["without_winner"] = summary.without_winner;
  dict["kept_existing"] = summary.kept_existing;
  dict["rejected"] = summary.rejected;
  py::list problems;
  for (const std::string& problem : summary.problems) problems.append(MessageText(problem));
  dict["problems"] = problems;
  return dict;
}

// ExportPack or WriteSourcePack.
template <auto write>
py::dict Export(KernelStore& store, const std::string& path, const std::string& arch) {
  PackSummary summary;
  {
    py::gil_scoped_release release;
    summary = ValueOrThrow(write(store, path, arch));
  }
  return SummaryDict(summary);
}

py::dict AdoptPack(const std::string& file, const py::object& tell, bool replace) {
  PackSummary summary;
  {
    py::gil_scoped_release release;
    const AcceptRecord accept = [&tell](CacheRecord* record) {
      const Status status = Prove(record);
      py::gil_scoped_acquire acquire;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (!tell.is_none() && (record->has_kernel() || !status.ok())) {
        tell(record->key, MessageText(status.message()));
      }
      return status;
    };
    summary = ValueOrThrow(ImportPack(*Runtime::Get().store(), file, accept, replace));
  }
  return SummaryDict(summary);
}

}  // namespace

void BindPacks(py::module_& m) {
  m.def("export_pack", &Export<ExportPack>, py::arg("store"), py::arg("file"),
        py::arg("arch") = "");
  m.def("export_sources", &Export<WriteSourcePack>, py::arg("store"), py::arg("folder"),
        py::arg("arch") = "");
  m.def("adopt_pack", &AdoptPack, py::arg("file"), py::arg("tell") = py::none(),
        py::arg("replace") = false);
}

}  // namespace cudaforge::binding
