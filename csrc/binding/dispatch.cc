#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>

#include "binding/errors.h"
#include "binding/json_py.h"
#include "binding/module.h"
#include "binding/runtime.h"
#include "binding/signature_py.h"
#include "dispatch/resolver.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

}  // namespace

void TellStats(const char* function, const std::string& text) {
  if (!Py_IsInitialized()) return;
  const py::gil_scoped_acquire acquire;
  try {
    py::module_::import("cudaforge_backend.stats").attr(function)(text);
  } catch (py::error_already_set& error) {
    // Ctrl-C: again, when Python's code runs. Nothing may be raised inside PyTorch's C++.
    if (error.matches(PyExc_KeyboardInterrupt)) return PyErr_SetInterrupt();
    error.discard_as_unraisable("cudaforge warning");
  }
}

void BindDispatch(py::module_& m) {
  using Release = py::call_guard<py::gil_scoped_release>;
  m.def(
      "ask_again", [] { Resolver::Get().AskAgain(); }, Release());
  m.def("stats", [] {
    Json stats;
    {
      py::gil_scoped_release release;
      stats = Resolver::Get().Stats();
    }
    return ToPython(stats);
  });
  m.def(
      "reset_stats", [] { Resolver::Get().ResetStats(); }, Release());
  Resolver::Get().SetWarningSink(
      [](const std::string& message) { TellStats("warn_once", message); });
}

}  // namespace cudaforge::binding
