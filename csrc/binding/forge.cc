#include "forge/forge.h"

#include <pybind11/stl.h>

#include <ctime>
#include <random>

#include "base/clock.h"
#include "binding/errors.h"
#include "binding/json_py.h"
#include "binding/module.h"
#include "binding/progress.h"
#include "binding/record_py.h"
#include "binding/runtime.h"
#include "binding/versions.h"
#include "forge/agent/memory.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

// What is found when the region cannot be judged at all, or not in its time: no candidate, and why.
SearchOutcome NotJudged(const Status& status) {
  SearchOutcome outcome;
  outcome.reason = status.message();
  outcome.out_of_time = status.code() == StatusCode::kTimeout;
  return outcome;
}

// `seconds` and `limit` (see ForgeBudget) count from here on. Runs without the GIL; `progress` is
// called with it.
SearchOutcome Search(const std::string& text, int device_index, double seconds, double limit,
                     int candidates, const py::object& progress) {
  const double start = SteadySeconds();
  const OpSignature signature = ParseSignature(text);
  Runtime& runtime = Runtime::Get();
  const ForgeProgress tell = Teller(progress);
  py::gil_scoped_release release;
  const Target* target = ValueOrThrow(runtime.TargetFor(signature.device, device_index));
  WorkerOptions options = runtime.Worker(signature.device, device_index);
  // Inputs that no author of a candidate can know.
  Result<std::unique_ptr<RegionChecker>> checker =
      RegionChecker::Create(signature, device_index, std::random_device()(), limit);
  const StatusCode code = checker.status().code();
  if (code == StatusCode::kUnsupported || code == StatusCode::kTimeout) {
    return NotJudged(checker.status());
  }
  ThrowIfError(checker.status());
  const double prepared = SteadySeconds() - start;
  ForgeBudget budget = {.seconds = seconds - prepared, .limit = limit - prepared};
  budget.candidates = candidates;
  options.compile_timeout_ms = TimeoutMs(budget.limit, options.compile_timeout_ms);
  options.run_timeout_ms = TimeoutMs(budget.limit, options.run_timeout_ms);
  WorkerClient worker(options);
  return ValueOrThrow(SearchRegion(signature, target->arch(), worker, **checker, budget, tell));
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

Promotion RaceCallables(const std::vector<std::string>& names,
                        const std::vector<py::function>& calls, const std::string& device,
                        int device_index, double budget_s, const py::object& clock, bool one_call) {
  if (names.size() != calls.size()) {
    throw StatusError(Status::InvalidArgument("there are not as many names as callables"));
  }
  const DeviceType type = ValueOrThrow(ParseDeviceType(device));
  std::vector<Contestant> contestants;
  for (size_t i = 0; i < names.size(); ++i) {
    const py::function& call = calls[i];
    contestants.push_back({names[i], [&call](int64_t sample) { return CallSample(call, sample); }});
  }
  py::gil_scoped_release release;
  Target* target = ValueOrThrow(Runtime::Get().TargetFor(type, device_index));
  PairedOptions options;
  options.budget_s = budget_s;
  return ValueOrThrow(Race(contestants, MakeClock(target, clock), options, one_call));
}

// Stores what was found, a kernel that serves somebody or a negative entry; in doubt where the
// machine was `busy` or the race says so. Gives the record, and whether it is now the one that is
// stored.
std::pair<CacheRecord, bool> Conclude(const std::string& text, int device_index,
                                      const SearchOutcome& outcome, const Promotion* promotion,
                                      double budget_s, double spent_s, bool busy) {
  const OpSignature signature = ParseSignature(text);
  Runtime& runtime = Runtime::Get();
  const DeviceArch& arch = ValueOrThrow(runtime.TargetFor(signature.device, device_index))->arch();
  const bool won = promotion != nullptr && promotion->promoted;
  const bool serves = promotion != nullptr && promotion->serves();
  const RegionTime time = {budget_s, spent_s};
  CacheRecord record =
      serves ? MakeWinnerRecord(signature, arch, outcome, *promotion, time, Versions())
             : MakeNegativeRecord(signature, arch, outcome, promotion, time, Versions());
  if (promotion != nullptr && (busy || promotion->doubtful)) {
    record.doubtful = static_cast<int64_t>(std::time(nullptr));
    runtime.NoteDoubt(record);
  }
  bool stored = false;
  ThrowIfError(runtime.store()->Conclude(record, outcome.lineage, &stored));
  if (won) ThrowIfError(NoteAgentRegion(*runtime.store(), signature, arch.target));
  RegionEntry* entry = Resolver::Get().Find(RegionId(record.key), device_index);
  if (entry != nullptr && (won || (serves && stored))) entry->saved_ns = SavedNs(record);
  return {std::move(record), stored};
}

py::tuple ConcludeForPython(const std::string& text, int device_index, const SearchOutcome& outcome,
                            const Promotion* promotion, double budget_s, double spent_s,
                            bool busy) {
  std::pair<CacheRecord, bool> done;
  {
    py::gil_scoped_release release;
    done = Conclude(text, device_index, outcome, promotion, budget_s, spent_s, busy);
  }
  return py::make_tuple(RecordDict(*Runtime::Get().store(), done.first), done.second);
}

}  // namespace

void BindForge(py::module_& m) {
  py::class_<SearchOutcome>(m, "SearchOutcome")
      .def_property_readonly("found", [](const SearchOutcome& o) { return o.best.has_value(); })
      .def_readonly("reason", &SearchOutcome::reason);
  py::class_<Promotion>(m, "Promotion")
      .def_readonly("promoted", &Promotion::promoted)
      .def_readonly("eager", &Promotion::eager)
      .def("times_us",
           [](const Promotion& promotion) {
             std::vector<double> us;
             for (size_t i = 0; i < promotion.times.names.size(); ++i) {
               us.push_back(promotion.times.MedianNs(i) / 1e3);
             }
             return us;
           })
      .def("placed_in", &PlacedIn, py::arg("key"), py::arg("inside"));
  m.def("search", &Search, py::arg("signature"), py::arg("device_index"), py::arg("seconds"),
        py::arg("limit"), py::arg("candidates"), py::arg("progress") = py::none());
  m.def("race", &RaceCallables, py::arg("names"), py::arg("callables"), py::arg("device"),
        py::arg("device_index"), py::arg("budget_s"), py::arg("clock") = py::none(),
        py::arg("one_call") = false);
  m.def("conclude", &ConcludeForPython, py::arg("signature"), py::arg("device_index"),
        py::arg("outcome"), py::arg("promotion").none(true), py::arg("budget_s"),
        py::arg("spent_s"), py::arg("busy") = false);
  m.def("versions", [] {
    Json versions = Versions();
    versions["rocksdb"] = RocksDbVersion();
    return ToPython(versions);
  });
}

}  // namespace cudaforge::binding
