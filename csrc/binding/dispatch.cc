#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>

#include "binding/errors.h"
#include "binding/json_py.h"
#include "binding/module.h"
#include "binding/runtime.h"
#include "dispatch/kernel_on_trial.h"
#include "dispatch/resolver.h"
#include "forge/forge.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

// KernelOnTrial as a context manager, of what a search found.
class TrialScope {
 public:
  TrialScope(std::string text, int device_index, const SearchOutcome& outcome)
      : text_(std::move(text)), device_index_(device_index), outcome_(outcome) {
    if (!outcome.best) throw StatusError(Status::InvalidArgument("the search found no candidate"));
  }
  TrialScope& Enter() {
    const OpSignature signature = ParseSignature(text_);
    RegionEntry* entry =
        ValueOrThrow(Resolver::Get().Resolve(RegionId(signature.Key()), text_, device_index_));
    trial_.emplace(entry, ValueOrThrow(Runtime::Get().LoadWinner(signature, device_index_,
                                                                 outcome_.best->candidate.ToJson(),
                                                                 outcome_.best->binary)));
    return *this;
  }
  void Exit() { trial_.reset(); }
  void Promote(bool eager_only) {
    if (!trial_) throw StatusError(Status::InvalidArgument("the trial has not begun"));
    trial_->Promote(eager_only);
  }

 private:
  const std::string text_;
  const int device_index_;
  const SearchOutcome outcome_;
  std::optional<KernelOnTrial> trial_;
};

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
  py::class_<TrialScope>(m, "KernelOnTrial")
      .def(py::init<std::string, int, const SearchOutcome&>(), py::arg("signature"),
           py::arg("device_index"), py::arg("outcome"))
      .def("__enter__", &TrialScope::Enter, py::return_value_policy::reference, Release())
      .def("__exit__", [](TrialScope& trial, const py::args& /*error*/) { trial.Exit(); })
      .def("promote", &TrialScope::Promote, py::arg("eager_only") = false, Release());
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
