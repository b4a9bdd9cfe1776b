#include "forge/forge.h"

#include <ATen/Version.h>
#include <pybind11/stl.h>
#include <torch/version.h>

#include "base/config.h"
#include "binding/errors.h"
#include "binding/json_py.h"
#include "binding/module.h"
#include "binding/runtime.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

constexpr const char* kVersion = "0.1.0";
constexpr int kVerifierVersion = 1;

OpSignature Parse(const std::string& text) { return ValueOrThrow(OpSignature::Parse(text)); }

py::dict OutcomeDict(const SearchOutcome& outcome) {
  py::dict dict;
  dict["candidate"] = py::none();
  dict["binary"] = py::bytes();
  dict["author"] = "";
  dict["worker_ns"] = py::none();
  if (outcome.best) {
    dict["candidate"] = ToPython(outcome.best->candidate.ToJson());
    dict["binary"] = py::bytes(outcome.best->binary);
    dict["author"] = outcome.best->candidate.author;
    dict["worker_ns"] = outcome.best->worker_ns;
  }
  py::list lineage;
  for (const Json& node : outcome.lineage) lineage.append(ToPython(node));
  dict["lineage"] = lineage;
  dict["verification"] = ToPython(outcome.verification);
  dict["reason"] = outcome.reason;
  dict["seconds"] = outcome.seconds;
  return dict;
}

// Runs without the GIL; `progress` is called with it.
py::dict Search(const std::string& text, int device_index, double seconds, int candidates,
                const py::object& progress) {
  const OpSignature signature = Parse(text);
  Runtime& runtime = Runtime::Get();
  ForgeProgress tell;
  if (!progress.is_none()) {
    tell = [&progress](const Json& event) {
      py::gil_scoped_acquire acquire;
      progress(ToPython(event));
    };
  }
  Result<SearchOutcome> outcome = Status::Internal("not run");
  {
    py::gil_scoped_release release;
    const Target* target = ValueOrThrow(runtime.TargetFor(signature.device, device_index));
    WorkerOptions options;
    options.executable = runtime.worker();
    options.device = signature.device;
    options.device_index = device_index;
    options.cxx = GlobalConfig().cxx;
    options.cuda_search_paths = runtime.cuda_search_paths();
    WorkerClient worker(options);
    outcome = SearchRegion(signature, target->arch(), worker,
                           {.seconds = seconds, .candidates = candidates}, tell);
  }
  return OutcomeDict(ValueOrThrow(std::move(outcome)));
}

// A Python callable's exception as a Status. REQUIRES: the GIL.
Status CallSample(const py::function& call, int64_t sample) {
  try {
    call(sample);
    return Status::Ok();
  } catch (py::error_already_set& error) {
    return Status::Internal(error.what());
  }
}

// Holds the GIL from before the caches are evicted until the clock has stopped, so that waiting for
// it is no part of any sample, and lets other threads have it between samples.
SampleClock MakeClock(Target* target, const py::object& python_clock) {
  if (python_clock.is_none()) {
    return [target](const std::function<Status()>& work) {
      py::gil_scoped_acquire acquire;
      return target->TimeOnce(work);
    };
  }
  return [&python_clock](const std::function<Status()>& work) -> Result<double> {
    py::gil_scoped_acquire acquire;
    Status status;
    py::cpp_function run([&work, &status] { status = work(); });
    try {
      const double ns = python_clock(run).cast<double>();
      CF_RETURN_IF_ERROR(status);
      return ns;
    } catch (py::error_already_set& error) {
      return Status::Internal(error.what());
    }
  };
}

py::dict PromotionDict(const Promotion& promotion) {
  py::dict dict;
  dict["promoted"] = promotion.promoted;
  dict["reason"] = promotion.reason;
  dict["best_rival"] = promotion.best_rival;
  dict["speedup"] = std::vector<double>{promotion.speedup.low, promotion.speedup.median,
                                        promotion.speedup.high};
  py::dict medians;
  for (size_t i = 0; i < promotion.times.names.size(); ++i) {
    medians[py::str(promotion.times.names[i])] = promotion.times.MedianNs(i);
  }
  dict["median_ns"] = medians;
  return dict;
}

py::dict RaceCallables(const std::vector<std::string>& names,
                       const std::vector<py::function>& calls, const std::string& device,
                       int device_index, double budget_s, const py::object& clock) {
  if (names.size() != calls.size()) {
    throw StatusError(Status::InvalidArgument("as many names as callables, please"));
  }
  const DeviceType type = device == "cpu" ? DeviceType::kCpu : DeviceType::kCuda;
  std::vector<Contestant> contestants;
  for (size_t i = 0; i < names.size(); ++i) {
    const py::function& call = calls[i];
    contestants.push_back(
        {names[i], [&call](int64_t sample) { return CallSample(call, sample); }});
  }
  Result<Promotion> promotion = Status::Internal("not run");
  {
    py::gil_scoped_release release;
    Target* target = ValueOrThrow(Runtime::Get().TargetFor(type, device_index));
    PairedOptions options;
    options.budget_s = budget_s;
    promotion = Race(contestants, MakeClock(target, clock), options);
  }
  return PromotionDict(ValueOrThrow(std::move(promotion)));
}

void Install(const std::string& text, int device_index, const py::dict& candidate,
             const std::string& binary) {
  const OpSignature signature = Parse(text);
  const Json json = FromPython(candidate);
  py::gil_scoped_release release;
  const std::string key = signature.Key();
  RegionEntry* entry =
      ValueOrThrow(Resolver::Get().Resolve(RegionId(key), text, device_index));
  Resolver::Get().Install(entry, ValueOrThrow(Runtime::Get().LoadWinner(signature, device_index,
                                                                        json, binary, key)));
}

void Uninstall(const std::string& text, int device_index) {
  py::gil_scoped_release release;
  RegionEntry* entry = Resolver::Get().Find(RegionId(Parse(text).Key()), device_index);
  if (entry != nullptr) Resolver::Get().Install(entry, nullptr);
}

py::dict Versions() {
  py::dict dict;
  dict["cudaforge"] = kVersion;
  dict["torch"] = TORCH_VERSION;
  dict["verifier"] = kVerifierVersion;
  return dict;
}

// Warnings come from any thread; those after the interpreter's end have nobody to read them.
void WarnPython(const std::string& message) {
  if (!Py_IsInitialized()) return;
  py::gil_scoped_acquire acquire;
  try {
    py::module_::import("cudaforge_backend.stats").attr("warn_once")(message);
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("cudaforge warning");
  }
}

}  // namespace

void BindForge(py::module_& m) {
  m.def("search", &Search, py::arg("signature"), py::arg("device_index"), py::arg("seconds"),
        py::arg("candidates"), py::arg("progress") = py::none());
  m.def("race", &RaceCallables, py::arg("names"), py::arg("callables"), py::arg("device"),
        py::arg("device_index"), py::arg("budget_s"), py::arg("clock") = py::none());
  m.def("install", &Install, py::arg("signature"), py::arg("device_index"), py::arg("candidate"),
        py::arg("binary"));
  m.def("uninstall", &Uninstall, py::arg("signature"), py::arg("device_index"));
  m.def("stats", [] { return ToPython(Resolver::Get().Stats()); });
  m.def("reset_stats", [] { Resolver::Get().ResetStats(); });
  m.def("versions", &Versions);
  Resolver::Get().SetWarningSink(&WarnPython);
}

}  // namespace cudaforge::binding
