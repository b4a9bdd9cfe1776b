// The calls that agents make: within the budget, each in the ledger.
#pragma once

#include <functional>
#include <string>

#include "base/cancel.h"
#include "base/json.h"
#include "base/status.h"
#include "forge/agent/agent_budget.h"
#include "forge/agent/ledger.h"
#include "forge/prompts.h"
#include "llm/prices.h"
#include "llm/provider.h"

namespace cudaforge {

// Not thread-safe.
class AgentCalls {
 public:
  struct Options {
    AgentBudget budget;
    Prices prices;
    ReplyLimits limits;                               // the most that any call gets
    std::function<double()> seconds_spent;            // of the budget's
    std::function<void(const Json& event)> progress;  // may be empty
  };
  // `cancel` must outlive this object.
  AgentCalls(Options options, const Cancel& cancel)
      : options_(std::move(options)), cancel_(cancel) {}

  // What a call with `prompt` may take; a refusal where the budget leaves too little.
  Allowance Allow(const Provider& provider, AgentRole role, const Prompt& prompt) const;
  // Tells that it asks, {"event": "ask","round","role","provider"}, makes the call with limits that
  // Allow gave, enters it into the ledger and tells of it:
  // {"event": "call","round","role","prompt","model","usage","usd","seconds"}, of a call that
  // failed also "error", and of one that a recording answered "replayed": its seconds are those it
  // took here. Counts that the service does not give, or gives as 0 where there was text, are
  // estimated: the input as Allow does, the output from the text, and all that was allowed where a
  // reply that was begun did not come to its end. Errors: the provider's; kCancelled, without an
  // entry, where `cancel` is set before the call.
  Result<Reply> Ask(Provider& provider, AgentRole role, const Prompt& prompt,
                    const ReplyLimits& limits, int round);

  // Of an earlier part of this session.
  void AddEarlier(LedgerEntry entry) { ledger_.Add(std::move(entry)); }
  const Ledger& ledger() const { return ledger_; }
  const AgentBudget& budget() const { return options_.budget; }
  const Cancel& cancel() const { return cancel_; }

 private:
  void Tell(const LedgerEntry& entry) const;

  const Options options_;
  const Cancel& cancel_;
  Ledger ledger_;
};

}  // namespace cudaforge
