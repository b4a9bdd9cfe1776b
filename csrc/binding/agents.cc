#include "binding/agents.h"

#include "base/sha256.h"
#include "binding/module.h"
#include "binding/runtime.h"
#include "generators/generator.h"

namespace cudaforge::binding {
namespace {

const std::string& AgentRegionsName() {
  static const std::string kName = Sha256Hex("agent regions");
  return kName;
}

}  // namespace

Status NoteAgentRegion(KernelStore& store, const OpSignature& signature, const std::string& arch) {
  if (!IsAgentRegion(signature).ok() || HasAgentRegions(store, arch)) return Status::Ok();
  return store.PutGraph(AgentRegionsName(), arch, {{"agent_regions", true}}, {});
}

bool HasAgentRegions(KernelStore& store, const std::string& arch) {
  return store.GetGraph(AgentRegionsName(), arch).has_value();
}

void BindAgents(pybind11::module_& m) {
  m.def(
      "has_agent_regions",
      [](const std::string& arch) { return HasAgentRegions(*Runtime::Get().store(), arch); },
      pybind11::arg("arch"), pybind11::call_guard<pybind11::gil_scoped_release>());
}

}  // namespace cudaforge::binding
