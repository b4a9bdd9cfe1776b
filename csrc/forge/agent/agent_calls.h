// Makes the calls of agents, within the budget, and enters each in the ledger.
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
    ReplyLimits limits;                               // the most that any call may use
    std::function<double()> seconds_spent;            // since the start of the budget
    std::function<void(const Json& event)> progress;  // may be empty
  };
  // `cancel` must outlive this object.
  AgentCalls(Options options, const Cancel& cancel)
      : options_(std::move(options)), cancel_(cancel) {}

  // Returns what a call with `prompt` may use; a refusal if the budget leaves too little.
  Allowance Allow(const Provider& provider, AgentRole role, const Prompt& prompt) const;
  // Makes the call, with limits from Allow, and enters it into the ledger. Reports {"event":
  // "ask","round","role","provider"} before it, and after it {"event":
  // "call","round","role","prompt","model","usage","usd","seconds"}. A failed call has "error" as
  // well, one that a recording answered "replayed". Missing or zero token counts are estimated: the
  // input as in Allow, the output from the text. An interrupted reply counts as the full allowance.
  // Errors: the provider's; kCancelled, without an entry, if `cancel` was set before.
  Result<Reply> Ask(Provider& provider, AgentRole role, const Prompt& prompt,
                    const ReplyLimits& limits, int round);

  // Adds an entry of an earlier part of this session.
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
