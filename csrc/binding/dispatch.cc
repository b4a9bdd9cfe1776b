#include <pybind11/stl.h>

#include "binding/errors.h"
#include "binding/json_py.h"
#include "binding/module.h"
#include "binding/runtime.h"
#include "dispatch/resolver.h"
#include "forge/forge.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

void Install(const std::string& text, int device_index, const SearchOutcome& outcome) {
  if (!outcome.best) throw StatusError(Status::InvalidArgument("the search found no candidate"));
  const OpSignature signature = ParseSignature(text);
  py::gil_scoped_release release;
  const std::string key = signature.Key();
  RegionEntry* entry = ValueOrThrow(Resolver::Get().Resolve(RegionId(key), text, device_index));
  Resolver::Get().Install(
      entry, ValueOrThrow(Runtime::Get().LoadWinner(
                 signature, device_index, outcome.best->candidate.ToJson(), outcome.best->binary)));
}

void Uninstall(const std::string& text, int device_index) {
  py::gil_scoped_release release;
  RegionEntry* entry = Resolver::Get().Find(RegionId(ParseSignature(text).Key()), device_index);
  if (entry != nullptr) Resolver::Get().Install(entry, nullptr);
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

void BindDispatch(py::module_& m) {
  m.def("install", &Install, py::arg("signature"), py::arg("device_index"), py::arg("outcome"));
  m.def("uninstall", &Uninstall, py::arg("signature"), py::arg("device_index"));
  m.def("stats", [] { return ToPython(Resolver::Get().Stats()); });
  m.def("reset_stats", [] { Resolver::Get().ResetStats(); });
  m.def(
      "uncounted",
      [](const py::function& work) {
        struct Restore {
          std::vector<int64_t> counts = Resolver::Get().Counts();
          ~Restore() { Resolver::Get().SetCounts(counts); }
        } restore;  // also when `work` throws
        return py::object(work());
      },
      py::arg("work"));
  Resolver::Get().SetWarningSink(&WarnPython);
}

}  // namespace cudaforge::binding
