#include <pybind11/stl.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/cancel.h"
#include "binding/agents_py.h"
#include "binding/errors.h"
#include "binding/host_py.h"
#include "binding/json_py.h"
#include "binding/module.h"
#include "binding/record_py.h"
#include "binding/signature_py.h"
#include "forge/region.h"
#include "runtime/runtime.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

// No reply of the Coder has a candidate, so there is no result for the region.
class NoReply : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

py::tuple ForgeForPython(const Signature& signature, int device_index, const py::object& host,
                         double budget_s, int candidates, Cancel& cancel, const Signature* within,
                         const std::optional<py::dict>& agents, const py::object& hints,
                         std::optional<double> search_s) {
  Runtime& runtime = Runtime::Get();
  std::optional<AgentsPy> asked;
  if (agents.has_value()) asked = ReadAgents(*agents, hints);
  RegionRequest request;
  request.device_index = device_index;
  request.budget_s = budget_s;
  request.search_s = search_s;
  request.candidates = candidates;
  request.cancel = &cancel;
  if (within != nullptr) request.within = *within;
  if (asked.has_value()) {
    request.agents = &asked->settings;
    request.resume = asked->resume;
  }
  std::optional<HostPy> program;
  Forged done;
  const std::shared_ptr<KernelStore> store = runtime.store();
  {
    py::gil_scoped_release release;
    Target* target = ValueOrThrow(runtime.TargetFor(signature.device, device_index));
    request.task = {signature, target->arch()};
    program.emplace(host, target, signature, device_index);
    done = ValueOrThrow(ForgeRegion(request, runtime.WorkshopFor(store, target->arch()), *program));
  }
  if (!done.record.has_value()) throw NoReply(done.no_reply);
  if (done.record->doubtful != 0) runtime.NoteDoubt(*done.record);
  return py::make_tuple(RecordDict(*store, *done.record), done.stored, done.spent);
}

}  // namespace

void BindForge(py::module_& m) {
  py::register_exception<NoReply>(m, "NoReply", PyExc_RuntimeError);
  m.def(
      "race_input_sets", [](const Signature& signature) { return RaceInputSets(signature); },
      py::arg("signature"));
  m.def("forge_region", &ForgeForPython, py::arg("signature"), py::arg("device_index"),
        py::arg("host"), py::arg("budget_s"), py::arg("candidates"), py::arg("cancel"),
        py::arg("within").none(true) = nullptr, py::arg("agents") = py::none(),
        py::arg("hints") = py::none(), py::arg("search_s") = py::none());
  m.def("versions", [] {
    Json versions = Versions();
    versions["rocksdb"] = RocksDbVersion();
    return ToPython(versions);
  });
}

}  // namespace cudaforge::binding
