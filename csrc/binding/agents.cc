#include <pybind11/stl.h>

#include <random>
#include <stdexcept>

#include "base/cancel.h"
#include "binding/errors.h"
#include "binding/module.h"
#include "binding/progress.h"
#include "binding/runtime.h"
#include "binding/signature_py.h"
#include "forge/agent/memory.h"
#include "forge/agent/session.h"
#include "forge/agent/triton.h"
#include "generators/generator.h"
#include "llm/provider.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

// The rival's name where it is the generators' kernel; integration/forging.py has it.
constexpr const char* kBuiltIn = "built-in";

// No reply of the Coder has a candidate: what was spent says nothing of the region.
class NoReply : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The settings that Python gives, each in its place; cudaforge_backend/agents.py has them.
struct Wanted {
  std::string coder, judge, coder_key, judge_key, prices_file;
  ProviderSettings providers;
  AgentSettings agents;
};

Wanted ReadSettings(const py::dict& settings) {
  const auto text = [&](const char* name) { return settings[name].cast<std::string>(); };
  Wanted wanted;
  wanted.coder = text("coder");
  wanted.judge = text("judge");
  wanted.coder_key = text("coder_key");
  wanted.judge_key = text("judge_key");
  wanted.prices_file = text("prices_file");
  wanted.providers.secrets = {wanted.coder_key, wanted.judge_key};
  wanted.providers.environment = settings["environment"].cast<std::map<std::string, std::string>>();
  AgentSettings& agents = wanted.agents;
  agents.session = text("session");
  agents.strategy = text("strategy");
  agents.metrics = settings["metrics"].cast<bool>();
  agents.budget.rounds = settings["rounds"].cast<int>();
  agents.budget.seconds = settings["seconds"].cast<double>();
  agents.budget.tokens = settings["tokens"].cast<int64_t>();
  agents.budget.usd = settings["usd"].cast<double>();
  agents.triton = settings["triton"].cast<std::vector<std::string>>();
  if (const auto us = settings["rival_us"].cast<std::optional<double>>()) {
    agents.rival_ns = *us * 1e3;
    agents.rival = text("rival");
  }
  return wanted;
}

std::function<std::vector<std::string>()> HintSource(const py::object& hints) {
  if (hints.is_none()) return nullptr;
  return [&hints] {
    py::gil_scoped_acquire acquire;
    return hints().cast<std::vector<std::string>>();
  };
}

// The agents that the settings name.
struct Providers {
  std::unique_ptr<Provider> coder, judge;
};

// Makes them, and puts them into `wanted->agents` with their prices. Throws where they cannot be
// asked.
Providers MakeProviders(Wanted* wanted) {
  Providers made;
  const auto make = [wanted](const std::string& spec, const std::string& key) {
    ProviderSettings settings = wanted->providers;
    settings.api_key = key;
    return ValueOrThrow(MakeProvider(spec, settings));
  };
  made.coder = make(wanted->coder, wanted->coder_key);
  if (!wanted->judge.empty()) made.judge = make(wanted->judge, wanted->judge_key);
  AgentSettings& agents = wanted->agents;
  if (!wanted->prices_file.empty()) agents.prices = ValueOrThrow(Prices::Load(wanted->prices_file));
  agents.coder = made.coder.get();
  agents.judge = made.judge.get();
  ThrowIfError(CheckAgents(agents));
  return made;
}

SearchOutcome Agents(const Signature& signature, int device_index, const py::dict& settings,
                     const SearchOutcome* built_in, Cancel& cancel, const py::object& hints,
                     const py::object& progress) {
  Wanted wanted = ReadSettings(settings);
  const bool resume = settings["resume"].cast<bool>();
  const ForgeProgress tell = Teller(progress);
  AgentSettings& agents = wanted.agents;
  agents.hints = HintSource(hints);
  py::gil_scoped_release release;
  Runtime& runtime = Runtime::Get();
  const Target* target = ValueOrThrow(runtime.TargetFor(signature.device, device_index));
  const std::string arch = target->arch().target;
  const std::shared_ptr<KernelStore> store = runtime.store();
  const Providers providers = MakeProviders(&wanted);

  const std::string& key = signature.key;
  // An interrupted session is found by its key, as regions that nobody forged are.
  if (store->Get(key, arch) == nullptr) {
    const WantedRegion region{key, arch, signature.ToJson()};
    (void)store->AddWanted({&region, 1});
  }
  // One session of a region at a time may be gone on with: a second one beside it is its own.
  const std::optional<FileLock> alone = LockSessions(*store, key, arch);
  SessionMemory memory = RecallSession(*store, signature, arch, resume && alone.has_value());
  agents.cancel = &cancel;
  if (!memory.session.empty()) agents.session = memory.session;
  agents.earlier = std::move(memory.unfinished);
  const bool made_now = built_in != nullptr && built_in->best.has_value();
  const Candidate* made = made_now ? &built_in->best->candidate : nullptr;
  agents.start = StartOf(memory, made);
  agents.start_near = NearRegionOf(memory, made);
  agents.start_is_rival = agents.rival == kBuiltIn && made_now &&
                          CandidateDigest(*agents.start) == CandidateDigest(*made);
  WorkerOptions options = runtime.Worker(signature.device, device_index);
  options.cancel = &cancel;
  WorkerClient worker(options);
  const std::unique_ptr<RegionChecker> checker =
      ValueOrThrow(RegionChecker::Create(signature, device_index, std::random_device()()));
  // A store that takes no writes ends nothing: the session goes on, and only resuming it is lost.
  const NodeSink keep = [&](const Json& node) { (void)store->AddLineage(key, arch, {node}); };
  AgentOutcome outcome =
      ValueOrThrow(RunAgents(signature, target->arch(), worker, *checker, agents, keep, tell));
  if (!cancel.IsSet()) {
    keep(EndNode(agents.session, outcome.search.reason, outcome.ledger.ToJson()));
  }
  const bool tried = outcome.answered && (outcome.has_candidate || built_in != nullptr);
  if (!tried && !outcome.search.best.has_value() && !cancel.IsSet()) {
    throw NoReply(outcome.search.reason);
  }
  outcome.search.stored = outcome.search.lineage.size();  // node by node
  outcome.search.lineage.clear();
  return std::move(outcome.search);
}

}  // namespace

void BindAgents(py::module_& m) {
  py::register_exception<NoReply>(m, "NoReply", PyExc_RuntimeError);
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
      "check_agents",
      [](const py::dict& settings) {
        Wanted wanted = ReadSettings(settings);
        (void)MakeProviders(&wanted);
      },
      py::arg("settings"));
  // For tests: the candidate that a reply in Triton comes to.
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
  m.def("agents", &Agents, py::arg("signature"), py::arg("device_index"), py::arg("settings"),
        py::arg("built_in").none(true), py::arg("cancel"), py::arg("hints") = py::none(),
        py::arg("progress") = py::none());
  m.def(
      "has_agent_regions",
      [](const std::string& arch) { return HasAgentRegions(*Runtime::Get().store(), arch); },
      py::arg("arch"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace cudaforge::binding
