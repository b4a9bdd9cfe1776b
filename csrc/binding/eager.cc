#include "dispatch/eager.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "base/own_work.h"
#include "binding/errors.h"
#include "binding/module.h"
#include "binding/signature_py.h"
#include "cache/wanted_writer.h"
#include "dispatch/resolver.h"
#include "runtime/runtime.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

WantedWriter& Writer() {
  static auto* const writer = new OfProcess<WantedWriter>;
  return writer->Get(
      [](const Status& status) { CallStats("wanted_not_recorded", status.message()); });
}

const std::string& ArchOf(const RegionEntry& region) {
  return ValueOrThrow(Runtime::Get().TargetFor(region.signature.device, region.device_index))
      ->arch()
      .target;
}

// Calls on_miss_py(signature, arch, device_index) on each miss. The callback is never freed, and
// not called after the interpreter's end. A forked child, which may be one of many workers, records
// nothing until it calls this itself.
void SetOnMiss(bool record, std::optional<py::function> on_miss_py) {
  auto* const kept = on_miss_py.has_value() ? new py::function(*std::move(on_miss_py)) : nullptr;
  EagerInterceptor::OnMiss on_miss = [record, kept, process = getpid()](const RegionEntry& region) {
    std::exception_ptr ends_call;
    const std::string& arch = ArchOf(region);
    if (record && process == getpid()) Runtime::Get().AddToWantedList(region, arch, &Writer());
    if (kept == nullptr || !Py_IsInitialized()) return ends_call;
    const py::gil_scoped_acquire acquire;
    try {
      (*kept)(std::make_shared<Signature>(region.signature), arch, region.device_index);
    } catch (py::error_already_set& error) {
      if (error.matches(PyExc_Exception)) {
        const std::string why = error.what();
        throw std::runtime_error(why.substr(0, why.find('\n')));
      }
      ends_call = std::current_exception();  // Ctrl-C belongs to the program: PyTorch passes it on
    }
    return ends_call;
  };
  if (!record && kept == nullptr) on_miss = nullptr;
  py::gil_scoped_release release;
  EagerInterceptor::Get().SetOnMiss(std::move(on_miss));
}

// OwnWork as a context manager, for the current thread.
class OwnWorkScope {
 public:
  void Enter() { own_work_.emplace(); }
  void Exit(const py::args& /*error*/) { own_work_.reset(); }

 private:
  std::optional<OwnWork> own_work_;
};

}  // namespace

void BindEager(py::module_& m) {
  using Release = py::call_guard<py::gil_scoped_release>;
  m.def(
      "why_not_intercepted",
      [](const std::string& op) -> std::optional<std::string> {
        const Status status = EagerInterceptor::CanIntercept(op);
        if (status.ok()) return std::nullopt;
        return status.message();
      },
      py::arg("op"));
  m.def(
      "intercept",
      [](const std::vector<std::string>& ops) {
        py::gil_scoped_release release;
        ThrowIfError(EagerInterceptor::Get().SetOps(ops));
      },
      py::arg("ops"));
  m.def(
      "intercepted", [] { return EagerInterceptor::Get().ops(); }, Release());
  m.def("on_eager_miss", &SetOnMiss, py::arg("record"), py::arg("told"));
  m.def("flush_eager_misses", [] {
    py::gil_scoped_release release;
    Writer().Flush();
  });
  m.def("end_eager_misses", [] {
    py::gil_scoped_release release;
    Writer().End();
  });
  // For eager and compiled graphs' calls with other alignments: the graphs' own regions were
  // recorded when they were compiled.
  m.def(
      "record_unaligned",
      [](bool record) {
        if (!record) return Resolver::Get().SetOnUnaligned(nullptr);
        Resolver::Get().SetOnUnaligned([process = getpid()](const RegionEntry& region) {
          if (process != getpid()) return;
          try {
            Runtime::Get().AddToWantedList(region, ArchOf(region), &Writer());
          } catch (const std::exception& error) {
            CallStats("wanted_not_recorded", error.what());
          }
        });
      },
      py::arg("record"), Release());
  py::class_<OwnWorkScope>(m, "OwnWork")
      .def(py::init<>())
      .def("__enter__", &OwnWorkScope::Enter)
      .def("__exit__", &OwnWorkScope::Exit);
}

}  // namespace cudaforge::binding
