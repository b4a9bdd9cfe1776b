#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "base/config.h"
#include "binding/errors.h"
#include "binding/json_py.h"
#include "binding/module.h"
#include "binding/text.h"
#include "measure/machine_load.h"
#include "measure/paired.h"
#include "measure/timing_lease.h"
#include "runtime/runtime.h"
#include "target/capabilities.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

constexpr double kLeaseSeconds = 5;  // to wait for others' timings

// Throws with what is missing on this machine.
Target* TargetNamed(const std::string& device, int device_index) {
  py::gil_scoped_release release;
  const DeviceType type = ValueOrThrow(ParseDeviceType(device));
  return ValueOrThrow(Runtime::Get().TargetFor(type, device_index));
}

template <size_t n>
py::tuple Names(const char* const (&names)[n]) {
  return py::tuple(py::cast(std::vector<std::string>(std::begin(names), std::end(names))));
}

py::dict ConfigDict() {
  const Config& config = GlobalConfig();
  py::dict dict;
  dict["disabled"] = config.disabled;
  dict["eager"] = config.eager;
  dict["on_miss"] = config.on_miss;
  dict["region_budget_s"] = config.region_budget_s;
  dict["graph_budget_s"] = config.graph_budget_s;
  dict["cache_dir"] = PathText(config.cache_dir);
  dict["log"] = config.log;
  dict["warnings"] = config.warnings;
  return dict;
}

py::list CapabilityDicts() {
  std::vector<Capability> found;
  {
    py::gil_scoped_release release;
    found = Capabilities(GlobalConfig().cxx, Runtime::Get().cuda_search_paths());
  }
  py::list list;
  for (const Capability& capability : found) {
    py::dict dict;
    dict["name"] = capability.name;
    dict["state"] = CapabilityStateName(capability.state);
    dict["detail"] = MessageText(capability.detail);
    dict["advice"] = MessageText(capability.advice);
    list.append(dict);
  }
  return list;
}

// The caller keeps the GIL: contestants and clock are Python callables.
PairedTimes TimeInterleaved(const std::vector<std::string>& names,
                            const std::vector<std::function<double()>>& calls, int min_rounds,
                            double budget_s) {
  if (names.size() != calls.size()) {
    throw StatusError(Status::InvalidArgument("expected one name for each callable"));
  }
  double ns = 0;
  std::vector<Contestant> contestants;
  for (size_t i = 0; i < names.size(); ++i) {
    contestants.push_back({names[i], [&ns, &call = calls[i]](int64_t) {
                             ns = call();
                             return Status::Ok();
                           }});
  }
  const SampleClock clock = [&ns](int64_t, const std::function<Status()>& work) -> Result<double> {
    CF_RETURN_IF_ERROR(work());
    return ns;
  };
  return ValueOrThrow(
      TimePaired(contestants, clock, {.min_samples = min_rounds, .budget_s = budget_s}));
}

size_t IndexOf(const PairedTimes& times, const std::string& name) {
  for (size_t i = 0; i < times.names.size(); ++i) {
    if (times.names[i] == name) return i;
  }
  throw StatusError(Status::NotFound("no contestant " + name));
}

}  // namespace

void BindMachine(py::module_& m) {
  m.def(
      "configure",
      [](const std::vector<std::filesystem::path>& cuda_folders,
         const std::filesystem::path& programs, const std::filesystem::path& torch) {
        Runtime::Get().Configure({cuda_folders.begin(), cuda_folders.end()}, programs, torch);
      },
      py::arg("cuda_folders"), py::arg("programs"), py::arg("torch"));
  m.def("config", &ConfigDict);
  m.def("cuda_search_paths", [] { return PathTexts(Runtime::Get().cuda_search_paths()); });
  m.def("worker_path", [] { return PathText(Runtime::Get().worker()); });
  m.def("verifier_path", [] { return PathText(Runtime::Get().verifier()); });
  m.def(
      "prepare_verifier",
      [](const std::string& device, int device_index) {
        const DeviceType type = ValueOrThrow(ParseDeviceType(device));
        py::gil_scoped_release release;
        Runtime::Get().verifiers().Prepare(type, device_index);
      },
      py::arg("device"), py::arg("device_index"));
  m.def(
      "verifier_waits",
      [](const std::string& device, int device_index) {
        const DeviceType type = ValueOrThrow(ParseDeviceType(device));
        return Runtime::Get().verifiers().Waits(type, device_index);
      },
      py::arg("device"), py::arg("device_index"));
  m.def("end_waiting_verifiers", [] {
    py::gil_scoped_release release;
    Runtime::Get().verifiers().EndWaiting();
  });

  m.def(
      "arch",
      [](const std::string& device, int device_index) {
        return TargetNamed(device, device_index)->arch().target;
      },
      py::arg("device"), py::arg("device_index") = 0);
  m.attr("ON_MISS") = Names(kOnMiss);
  m.attr("DEFAULT_REGION_BUDGET_S") = Config().region_budget_s;
  m.attr("LOG_TOPICS") = Names(kLogTopics);
  m.def("capabilities", &CapabilityDicts);
  py::class_<PairedTimes>(m, "PairedTimes")
      .def(
          "median_ns",
          [](const PairedTimes& times, const std::string& name) {
            return times.MedianNs(IndexOf(times, name));
          },
          py::arg("name"))
      .def(
          "speedup",
          [](const PairedTimes& times, const std::string& base, const std::string& name) {
            const RatioInterval r = times.Speedup(IndexOf(times, base), IndexOf(times, name));
            return py::make_tuple(r.low, r.median, r.high);
          },
          py::arg("base"), py::arg("name"))
      .def("interrupted", &PairedTimes::Interrupted);
  py::class_<MachineLoad>(m, "MachineLoad")
      .def(py::init<>())
      .def("was_disturbed", &MachineLoad::WasDisturbed);
  m.def(
      "device_facts",
      [](const std::string& device, int device_index) {
        Target* target = TargetNamed(device, device_index);
        const DeviceType type = ValueOrThrow(ParseDeviceType(device));
        Json facts;
        {
          py::gil_scoped_release release;
          const TimingLease lease = TimingLease::Take(type, device_index, kLeaseSeconds);
          facts = ValueOrThrow(target->Facts());
          facts["alone"] = lease.alone();
        }
        return ToPython(facts);
      },
      py::arg("device"), py::arg("device_index"));
  m.def("time_interleaved", &TimeInterleaved, py::arg("names"), py::arg("callables"),
        py::arg("min_rounds"), py::arg("budget_s"));
}

}  // namespace cudaforge::binding
