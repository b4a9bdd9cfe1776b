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
  void Promote(bool compiled, bool eager) {
    if (!trial_) throw StatusError(Status::InvalidArgument("the trial has not begun"));
    trial_->Promote(compiled, eager);
  }

 private:
  const std::string text_;
  const int device_index_;
  const SearchOutcome outcome_;
  std::optional<KernelOnTrial> trial_;
};

bool InMainThread() {
  const py::object main = py::module_::import("threading").attr("main_thread")();
  return main.attr("ident").cast<unsigned long>() == PyThread_get_thread_ident();
}

// Has Python raise `value`, an exception, in this thread when its Python code runs again: inside
// PyTorch's C++ nothing may be raised. In the main thread `value` itself, in others, where Python
// takes no more than a type, a new one of its type. Where it has no Python code, or no room for it,
// it is reported. Runs no Python code after that was asked for: it would be raised in there.
// REQUIRES: the GIL.
void RaiseLater(py::object value, bool in_main_thread) {
  const bool has_code = PyEval_GetFrame() != nullptr;
  if (has_code && !in_main_thread) {
    const py::type type = py::type::of(value);
    value = {};
    PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), type.ptr());
    return;
  }
  const auto raise = [](void* kept) {
    const auto exception = py::reinterpret_steal<py::object>(static_cast<PyObject*>(kept));
    PyErr_SetObject(py::type::handle_of(exception).ptr(), exception.ptr());
    return -1;
  };
  if (has_code && Py_AddPendingCall(raise, value.ptr()) == 0) {
    (void)value.release();
    return;
  }
  const py::str where("cudaforge warning");
  PyErr_SetObject(py::type::handle_of(value).ptr(), value.ptr());
  PyErr_WriteUnraisable(where.ptr());
}

struct Raised {
  py::object value;             // null: nothing was, or an Exception, which is reported
  bool in_main_thread = false;  // found out first: that runs Python code, which may raise
};

// Calls that function with `text`. What was raised meanwhile and ends a program, without its
// traceback: the frames there may run Python code when they go.
Raised Tell(const char* function, const std::string& text) {
  Raised raised;
  try {
    raised.in_main_thread = InMainThread();
    py::module_::import("cudaforge_backend.stats").attr(function)(text);
  } catch (py::error_already_set& error) {
    if (error.matches(PyExc_Exception)) {
      error.discard_as_unraisable("cudaforge warning");
    } else {
      PyException_SetTraceback(error.value().ptr(), Py_None);
      raised.value = error.value();
    }
  }
  return raised;
}

}  // namespace

void TellStats(const char* function, const std::string& text) {
  if (!Py_IsInitialized()) return;
  py::gil_scoped_acquire acquire;
  Raised raised = Tell(function, text);
  if (raised.value) RaiseLater(std::move(raised.value), raised.in_main_thread);
}

void BindDispatch(py::module_& m) {
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<TrialScope>(m, "KernelOnTrial")
      .def(py::init<std::string, int, const SearchOutcome&>(), py::arg("signature"),
           py::arg("device_index"), py::arg("outcome"))
      .def("__enter__", &TrialScope::Enter, py::return_value_policy::reference, Release())
      .def("__exit__", [](TrialScope& trial, const py::args& /*error*/) { trial.Exit(); })
      .def("promote", &TrialScope::Promote, py::arg("compiled"), py::arg("eager"), Release());
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
