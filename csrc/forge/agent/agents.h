// The agents' loop: a Coder writes a kernel, the forge compiles, verifies, times and profiles it, a
// Judge names one thing to change, and again, within a budget.
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
  Provider* judge = nullptr;  // nullptr: nobody judges
  bool metrics = true;        // false: no counter is in any prompt
  std::string strategy = StrategyNames().front();
  Prices prices;
  AgentBudget budget;
  ReplyLimits limits;              // the most that any one call gets
  std::optional<double> rival_ns;  // of what must be beaten
  std::string rival;               // its name: "inductor"
  // What must be beaten is `start`: where that is right, its time in this session is the rival's.
  bool start_is_rival = false;
  // The best kernel there is so far. Tried first, and then what the Coder starts from.
  std::optional<Candidate> start;
  std::string start_near;  // key of the near region that `start` was made for; empty: this one
  // What a person said since it was last asked; for the next prompts. May be empty.
  std::function<std::vector<std::string>()> hints;
  Cancel* cancel = nullptr;  // nullptr: never; the session sets it where `progress` throws
  std::string session;       // names this session in the lineage; not empty
  // Nodes of the session that this one resumes, oldest first (see LastSession): ids go on, the
  // search goes on from the best of them, and what they spent counts. What cannot be read is passed
  // over.
  std::vector<Json> earlier;
  // The program that compiles Triton (see triton.h); empty: kernels are written in CUDA C++ or C++.
  std::vector<std::string> triton;
  size_t max_documents = 24 << 10;  // bytes of the knowledge base in one prompt
  std::function<double()> clock;    // seconds; empty: a steady clock
};

// What must be beaten, in words: "inductor, 12.4 us".
std::string RivalText(const std::string& rival, std::optional<double> ns);
// Tells {"event":"rival","rival","us"} where `ns` is known.
void TellRival(const AgentSettings& settings, std::optional<double> ns,
               const ForgeProgress& progress);

struct AgentOutcome {
  SearchOutcome search;  // `trials`: those that were finished here; `reason`: why it ended
  Ledger ledger;         // of this session and what it resumes
  bool answered;         // the Coder replied, or need not be asked
  bool has_candidate;    // of the generators, or in a reply
};

// Runs the session until the budget is spent, nothing is gained any more, `cancel` is set (within
// half a second where the evaluator was given it too) or an agent cannot be reached.
//
// Progress, beside what agent_calls.h and journal.h say: {"event":"rival","rival","us"}, what must
// be beaten, where that is known; {"event":"round","round","kind","parent"} and, of a start that
// was made for a near region, "near": its key; {"event":"advice","round","issue","plan"} or
// {...,"silence"}; {"event":"agents_end","reason","limit","ledger","answered"}, "limit": that of
// "seconds", "tokens" and "usd" that left no room for another call of the Coder, or "".
// What `progress` throws cancels the session, and is thrown again when the round under way is
// stored with the calls that it made; nothing is told any more.
//
// Errors: kInvalidArgument for settings that cannot be used (no Coder, no session's name, a limit
// in dollars without a price); no call was made then.
Result<AgentOutcome> RunAgents(const Task& task, Evaluator& evaluator,
                               const AgentSettings& settings, const NodeSink& sink,
                               const ForgeProgress& progress);

// Whether the agents of `settings` can be asked: a Coder, and prices for a limit in dollars. Makes
// no call. kInvalidArgument.
Status CheckAgents(const AgentSettings& settings);

}  // namespace cudaforge
