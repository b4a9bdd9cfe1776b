#include <pybind11/stl.h>

#include <map>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "binding/agents_py.h"
#include "binding/errors.h"
#include "binding/module.h"
#include "binding/signature_py.h"
#include "forge/agent/memory.h"
#include "forge/agent/triton.h"
#include "runtime/runtime.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

std::function<std::vector<std::string>()> HintSource(const py::object& hints) {
  if (hints.is_none()) return nullptr;
  return [&hints] {
    py::gil_scoped_acquire acquire;
    return hints().cast<std::vector<std::string>>();
  };
}

}  // namespace

AgentsPy ReadAgents(const py::dict& settings, const py::object& hints) {
  const auto text = [&](const char* name) { return settings[name].cast<std::string>(); };
  AgentsPy made;
  AgentSettings& agents = made.settings;
  agents.session = text("session");
  agents.strategy = text("strategy");
  agents.metrics = settings["metrics"].cast<bool>();
  agents.budget.rounds = settings["rounds"].cast<int>();
  agents.budget.seconds = settings["seconds"].cast<double>();
  agents.budget.tokens = settings["tokens"].cast<int64_t>();
  agents.budget.usd = settings["usd"].cast<double>();
  agents.triton = settings["triton"].cast<std::vector<std::string>>();
  agents.hints = HintSource(hints);
  made.resume = settings["resume"].cast<bool>();
  ProviderSettings providers;
  providers.secrets = {text("coder_key"), text("judge_key")};
  providers.environment = settings["environment"].cast<std::map<std::string, std::string>>();
  const auto make = [&](const char* role) -> std::unique_ptr<Provider> {
    if (text(role).empty()) return nullptr;
    providers.api_key = text((std::string(role) + "_key").c_str());
    return ValueOrThrow(MakeProvider(text(role), providers));
  };
  made.coder = make("coder");
  made.judge = make("judge");
  const std::string prices = text("prices_file");
  if (!prices.empty()) agents.prices = ValueOrThrow(Prices::Load(prices));
  agents.coder = made.coder.get();
  agents.judge = made.judge.get();
  ThrowIfError(CheckAgents(agents));
  return made;
}

void BindAgents(py::module_& m) {
  py::class_<Cancel>(m, "Cancel").def(py::init<>()).def("set", &Cancel::Set);
  m.def("providers_help", &ProvidersHelp);
  m.def("provider_variables", &ProviderVariables);
  m.def("strategies", &StrategyNames);
  m.def("agent_limits", [] {
    const AgentBudget budget;
    py::dict limits;
    limits["rounds"] = budget.rounds;
    limits["seconds"] = budget.seconds;
    limits["tokens"] = budget.tokens;
    limits["usd"] = budget.usd;
    return limits;
  });
  m.def(
      "check_agents", [](const py::dict& settings) { (void)ReadAgents(settings, py::none()); },
      py::arg("settings"));
  // For tests: the candidate made from a reply in Triton.
  m.def(
      "read_triton",
      [](const std::string& reply, const Signature& signature, const std::string& arch,
         const std::vector<std::string>& program) {
        const py::gil_scoped_release release;
        const Cancel never;
        return ValueOrThrow(
                   ParseTritonReply(reply, signature, {program, arch}, "agent:test", never))
            .ToJson()
            .dump();
      },
      py::arg("reply"), py::arg("signature"), py::arg("arch"), py::arg("program"));
  m.def(
      "has_agent_regions",
      [](const std::string& arch) { return HasAgentRegions(*Runtime::Get().store(), arch); },
      py::arg("arch"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace cudaforge::binding
