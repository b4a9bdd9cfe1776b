#include <string>

#include "binding/errors.h"
#include "binding/json_py.h"
#include "binding/module.h"
#include "dispatch/eager.h"
#include "dispatch/prepared_forms.h"
#include "dispatch/resolver.h"

namespace cudaforge::binding {

namespace py = pybind11;

void CallStats(const char* function, const std::string& text) {
  if (!Py_IsInitialized()) return;
  const py::gil_scoped_acquire acquire;
  try {
    py::module_::import("cudaforge_backend.stats").attr(function)(text);
  } catch (py::error_already_set& error) {
    // Ctrl-C is raised later, when Python code runs. Nothing may be raised inside PyTorch's C++.
    if (error.matches(PyExc_KeyboardInterrupt)) return PyErr_SetInterrupt();
    error.discard_as_unraisable("cudaforge warning");
  }
}

void BindDispatch(py::module_& m) {
  using Release = py::call_guard<py::gil_scoped_release>;
  m.def(
      "ask_again", [] { Resolver::Get().RetryMissing(); }, Release());
  m.def("stats", [] {
    Json stats;
    {
      py::gil_scoped_release release;  // threads that hold the mutexes may wait for it
      stats = Resolver::Get().Stats();
      stats["prepared"] = PreparedForms::Get().Stats();
      stats["eager"] = EagerInterceptor::Get().Stats();
    }
    return ToPython(stats);
  });
  m.def(
      "reset_stats",
      [] {
        Resolver::Get().ResetStats();
        PreparedForms::Get().ResetStats();
        EagerInterceptor::Get().ResetStats();
      },
      Release());
  m.def(
      "weights_changed", [] { return ValueOrThrow(PreparedForms::Get().WeightsChanged()); },
      Release());
  Resolver::Get().SetWarningSink(
      [](const std::string& message) { CallStats("warn_once", message); });
}

}  // namespace cudaforge::binding
