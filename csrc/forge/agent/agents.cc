#include "forge/agent/agents.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "forge/agent/agent_calls.h"
#include "forge/agent/agent_policy.h"
#include "forge/agent/agent_prompts.h"
#include "forge/agent/llm_author.h"
#include "forge/agent/triton.h"
#include "measure/roofline.h"

namespace cudaforge {
namespace {

Json DeviceFor(const DeviceArch& arch, const Json& facts) {
  Json device = arch.Facts();
  device["arch"] = arch.target;
  device.update(facts);
  for (auto field = device.begin(); field != device.end();) {  // drops empty fields
    field = field->is_null() || *field == "" ? device.erase(field) : std::next(field);
  }
  return device;
}

// The DerivedFacts that hold for any kernel of the region.
Json FloorOf(const OpSignature& signature, const Json& facts) {
  const Json derived = DerivedFacts(Json(), facts, signature, 0);
  Json floor = Json::object();
  for (const char* field : {"needed_bytes", "needed_flops", "floor_us"}) {
    if (derived.contains(field)) floor[field] = derived[field];
  }
  return floor.empty() ? Json() : floor;
}

ReplyReader ReaderFor(const Task& task, const AgentSettings& settings, const Cancel& cancel) {
  if (!settings.triton.empty()) {
    return [&task, &cancel, compiler = TritonCompiler{settings.triton, task.arch.target}](
               std::string_view reply, std::string author) {
      return ParseTritonReply(reply, task.region, compiler, std::move(author), cancel);
    };
  }
  const Language language =
      task.region.device == DeviceType::kCuda ? Language::kCuda : Language::kCpu;
  return [language](std::string_view reply, std::string author) {
    return ParseCoderReply(reply, language, std::move(author));
  };
}

// All objects of a session, in the order of their dependencies.
class Session {
 public:
  Session(const Task& task, Evaluator& evaluator, const AgentSettings& settings,
          const Cancel& cancel, const Strategy& strategy, const NodeSink& sink,
          const ForgeProgress& progress)
      : settings_(settings),
        progress_(progress),
        evaluator_(evaluator),
        floor_(FloorOf(task.region, evaluator.facts())),
        calls_({settings.budget, settings.prices, settings.limits,
                [this] { return journal_.seconds(); }, progress},
               cancel),
        journal_({settings.session, settings.rival_ns,
                  settings.clock ? settings.clock : &SteadySeconds, &sink, progress},
                 &calls_, &population_),
        prompts_({&task.region, task.arch.target, DeviceFor(task.arch, evaluator.facts()), floor_,
                  RivalText(settings.rival, settings.rival_ns), settings.metrics,
                  settings.max_documents, settings.triton.empty() ? "" : "triton"}),
        author_({settings.coder, settings.judge, settings.session, settings.hints, progress},
                ReaderFor(task, settings, cancel), prompts_, &calls_, &journal_),
        cancel_(cancel),
        strategy_(strategy) {}

  Result<AgentOutcome> Run() {
    CF_RETURN_IF_ERROR(journal_.Load(settings_.earlier, settings_.prices));
    const size_t earlier = population_.trials().size();
    if (!settings_.start_is_rival) ReportRival(settings_, settings_.rival_ns, progress_);
    const auto floor_us = JsonDouble(floor_, "floor_us");
    AgentPolicy policy({settings_, cancel_, strategy_, progress_,
                        floor_us.ok() ? *floor_us * 1e3 : 0, &author_, &prompts_, &journal_},
                       population_);
    Forge(policy, evaluator_, &population_);
    SearchOutcome search;
    search.best = policy.TakeBest();
    const std::string reason = policy.WhyStop();
    const std::vector<Trial>& trials = population_.trials();
    const bool has_candidate = std::any_of(trials.begin(), trials.end(), [](const Trial& trial) {
      return trial.candidate.has_value();
    });
    search.reason = reason;
    if (!search.best.has_value()) {
      const auto last = std::find_if(trials.rbegin(), trials.rend(),
                                     [](const Trial& trial) { return trial.answered; });
      if (last != trials.rend() && !last->correct()) {
        search.reason =
            std::string(has_candidate ? "no candidate was right: " : "no reply has a candidate: ") +
            reason + "; the last: " + last->verdict.message;
      }
    }
    const bool answered =
        journal_.rounds() > 0 || (author_.asked() == 0 && search.best.has_value());
    Ledger costs = journal_.Costs();
    if (progress_) {
      progress_({{"event", "agents_end"},
                 {"reason", reason},
                 {"limit", author_.limit()},
                 {"ledger", costs.ToJson()},
                 {"answered", answered}});
    }
    search.trials.assign(trials.begin() + static_cast<std::ptrdiff_t>(earlier), trials.end());
    return AgentOutcome{std::move(search), std::move(costs), answered, has_candidate};
  }

 private:
  const AgentSettings& settings_;
  const ForgeProgress& progress_;
  Evaluator& evaluator_;
  const Json floor_;
  Population population_;
  AgentCalls calls_;
  Journal journal_;
  AgentPrompts prompts_;
  LlmAuthor author_;
  const Cancel& cancel_;
  const Strategy& strategy_;
};

}  // namespace

std::string RivalText(const std::string& rival, std::optional<double> ns) {
  if (!ns.has_value()) return rival;
  return (rival.empty() ? "the best so far" : rival) + ", " + Significant(*ns / 1e3, 3) + " us";
}

void ReportRival(const AgentSettings& settings, std::optional<double> ns,
                 const ForgeProgress& progress) {
  if (!ns.has_value() || !progress) return;
  progress({{"event", "rival"}, {"rival", settings.rival}, {"us", *ns / 1e3}});
}

Result<AgentOutcome> RunAgents(const Task& task, Evaluator& evaluator,
                               const AgentSettings& settings, const NodeSink& sink,
                               const ForgeProgress& progress) {
  CF_RETURN_IF_ERROR(CheckAgents(settings));
  if (settings.session.empty()) return Status::InvalidArgument("a session needs a name");
  if (!settings.triton.empty() && task.region.device != DeviceType::kCuda) {
    return Status::InvalidArgument("kernels in Triton are for CUDA devices");
  }
  CF_ASSIGN_OR_RETURN(const auto strategy, MakeStrategy(settings.strategy));
  Cancel own;
  Cancel& cancel = settings.cancel != nullptr ? *settings.cancel : own;
  std::exception_ptr thrown;
  const ForgeProgress tell = [&](const Json& event) {
    if (!progress || thrown != nullptr) return;
    try {
      progress(event);
    } catch (...) {
      thrown = std::current_exception();
      cancel.Set();
    }
  };
  Result<AgentOutcome> outcome =
      Session(task, evaluator, settings, cancel, *strategy, sink, tell).Run();
  if (thrown != nullptr) std::rethrow_exception(thrown);
  return outcome;
}

Status CheckAgents(const AgentSettings& settings) {
  CF_RETURN_IF_ERROR(MakeStrategy(settings.strategy).status());
  if (settings.coder == nullptr) return Status::InvalidArgument("a session needs a Coder");
  for (const Provider* provider : {settings.coder, settings.judge}) {
    if (provider == nullptr || settings.budget.usd <= 0) continue;
    const std::string name = provider->name();
    if (settings.prices.Find(name, "") != nullptr) continue;
    return Status::InvalidArgument("a limit in dollars needs a price, and " +
                                   settings.prices.name() + " has none for " + name);
  }
  return Status::Ok();
}

}  // namespace cudaforge
