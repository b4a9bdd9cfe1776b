#include <chrono>

#include "base/fork.h"
#include "binding/module.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

// Forks of Python, and what leaves the interpreter in a state that a child could not go on from.
using Gate = ForkGate<struct Interpreter>;

class PythonsNoFork {};

constexpr double kMostSeconds = 60;  // that who forks and who gets inside wait for each other

Gate::Duration Seconds(double seconds) {
  return std::chrono::duration_cast<Gate::Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

// Handlers of forks in C: no signal's exception ends the wait of one. None waits with the GIL,
// which those need that are waited for.
void BindForks(py::module_& m) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  py::class_<PythonsNoFork>(m, "NoForkMeanwhile")
      .def(py::init<>())
      .def(
          "__enter__", [](PythonsNoFork&) { Gate::Enter(Seconds(kMostSeconds)); }, without_gil)
      .def("__exit__", [](PythonsNoFork&, const py::args&) {
        const py::gil_scoped_release unlocked;
        Gate::Leave();
      });
  m.def(
      "before_fork", [](double most_s) { return Gate::BeforeFork(Seconds(most_s)); },
      py::arg("most_s") = kMostSeconds, without_gil);
  m.def("after_fork_in_parent", Gate::AfterForkInParent);
  m.def("after_fork_in_child", Gate::AfterForkInChild);
  m.def("amid_fork", Gate::AmidFork);
}

}  // namespace cudaforge::binding
