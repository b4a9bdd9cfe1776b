// The agents' loop, within a budget: a Coder writes a kernel, the forge compiles, verifies, times
// and profiles it, and a Judge names one thing to change.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/json.h"
#include "base/status.h"
#include "forge/agent/agent_budget.h"
#include "forge/agent/journal.h"
#include "forge/agent/ledger.h"
#include "forge/agent/strategy.h"
#include "forge/forge.h"
#include "kernel/candidate.h"
#include "llm/prices.h"
#include "llm/provider.h"

namespace cudaforge {

struct AgentSettings {
  Provider* coder = nullptr;
  Provider* judge = nullptr;  // nullptr: no advice
  bool metrics = true;        // false: no counters in prompts
  std::string strategy = StrategyNames().front();
  Prices prices;
  AgentBudget budget;
  ReplyLimits limits;              // the most that any one call may use
  std::optional<double> rival_ns;  // the time to beat
  std::string rival;               // its name: "inductor"
  // The rival is `start`: if it is correct, its time in this session is the rival's.
  bool start_is_rival = false;
  // The best kernel so far. Tried first; then the Coder starts from it.
  std::optional<Candidate> start;
  std::string start_near;  // key of the similar region that `start` was made for; empty: this one
  // Returns new hints by the user, for the next prompts. May be empty.
  std::function<std::vector<std::string>()> hints;
  Cancel* cancel = nullptr;  // nullptr: never; the session sets it if `progress` throws
  std::string session;       // the session's name in the lineage; not empty
  // Nodes of the session to resume, oldest first (see LastSession). Ids, search and costs continue
  // from them. Unreadable ones are skipped.
  std::vector<Json> earlier;
  // The command that compiles Triton (see triton.h); empty: kernels are in CUDA C++ or C++.
  std::vector<std::string> triton;
  size_t max_documents = 24 << 10;  // bytes of the knowledge base in one prompt
  std::function<double()> clock;    // seconds; empty: a steady clock
};

// The rival in words: "inductor, 12.4 us".
std::string RivalText(const std::string& rival, std::optional<double> ns);
// Reports {"event":"rival","rival","us"} if `ns` is known.
void ReportRival(const AgentSettings& settings, std::optional<double> ns,
                 const ForgeProgress& progress);

struct AgentOutcome {
  SearchOutcome search;  // `trials`: those finished here; `reason`: why it ended
  Ledger ledger;         // of this session and the one that it resumes
  bool answered;         // the Coder replied, or was not needed
  bool has_candidate;    // from the generators, or in a reply
};

// Runs the session until the budget is spent, there is no gain, `cancel` is set (within half a
// second, if the evaluator has it too) or an agent cannot be reached. For the progress events see
// docs/messages.md. If `progress` throws, the session is cancelled; the exception is rethrown after
// the current round is stored, without more events. kInvalidArgument, before any call: unusable
// settings (no Coder, no session name, a limit in dollars without a price).
Result<AgentOutcome> RunAgents(const Task& task, Evaluator& evaluator,
                               const AgentSettings& settings, const NodeSink& sink,
                               const ForgeProgress& progress);

// Checks that the agents of `settings` can be used: a Coder, and prices for a limit in dollars.
// Makes no call. kInvalidArgument.
Status CheckAgents(const AgentSettings& settings);

}  // namespace cudaforge
