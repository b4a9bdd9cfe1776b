#include <chrono>

#include "base/fork.h"
#include "binding/module.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

// Forks of Python, and what leaves the interpreter in a state that a child could not go on from.
using Gate = ForkGate<struct Interpreter>;

class NoFork {};

}  // namespace

// Handlers of forks in C: no signal's exception ends the wait of one. None waits with the GIL,
// which those need that are waited for.
void BindForks(py::module_& m) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  py::class_<NoFork>(m, "NoFork")
      .def(py::init<>())
      .def(
          "__enter__", [](NoFork&) { Gate::Enter(); }, without_gil)
      .def("__exit__", [](NoFork&, const py::args&) {
        const py::gil_scoped_release unlocked;
        Gate::Leave();
      });
  const auto before = [](double most_s) {
    Gate::BeforeFork(std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(most_s)));
  };
  m.def("before_fork", before, py::arg("most_s") = 60.0, without_gil);
  m.def("after_fork_in_parent", Gate::AfterForkInParent);
  m.def("after_fork_in_child", Gate::AfterForkInChild);
}

}  // namespace cudaforge::binding
