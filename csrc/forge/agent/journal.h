// The progress of an agents' session: the costs and gains of its trials. Stores and reports each.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "forge/agent/agent_calls.h"
#include "forge/agent/ledger.h"
#include "forge/trial.h"
#include "llm/prices.h"

namespace cudaforge {

// Called when a trial begins to cost something and when it is finished. The later call with the
// same id replaces the earlier. Runs in the session's thread; stores the trial
// (KernelStore::AddLineage).
using NodeSink = std::function<void(const Json& trial)>;

// Not thread-safe. All arguments must outlive it.
class Journal {
 public:
  struct Settings {
    std::string session;  // its name
    // The rival's time; empty: unknown.
    std::optional<double> rival_ns;
    std::function<double()> clock;  // seconds
    const NodeSink* sink;
    std::function<void(const Json& event)> progress;  // may be empty
  };
  Journal(Settings settings, AgentCalls* calls, Population* population);

  // Takes over the trials and costs of the resumed session, and reports
  // {"event":"resumed","nodes","ledger"}. Skips unreadable ones. kInvalidArgument: a limit in
  // dollars, and spending at an unknown price.
  Status Load(const std::vector<Json>& earlier, const Prices& prices);
  // Replaces the findings of an earlier trial, whose candidate was re-tested. If it is still
  // correct, other trials keep their rank as slower ones. If not, stores it and its duplicates in
  // their place, and reports each: {"event":"rejudged","round","before","verdict","message"}.
  void Refresh(int id, const Findings& today);

  // Sets the rival's time.
  void SetRival(double ns) { settings_.rival_ns = ns; }
  std::optional<double> rival_ns() const { return settings_.rival_ns; }

  // Sets the fields that every trial of this session has.
  void Begin(Trial* trial) const;
  // Stores a trial before its candidate runs. If the process is killed, the next session finishes
  // it.
  void KeepUnevaluated(Trial trial) const;
  // Stores a trial before the Coder is called. If the process is killed, its costs are known.
  void KeepUnanswered(Trial trial) const;
  // Counts the trials of this candidate that a killed session left without a verdict.
  int Interrupted(const Candidate& candidate) const;
  // Completes a trial: adds the calls and time since the last one, and replaces what was stored
  // under its id. Reports {"event":"candidate","round","kind","verdict","message","ns","speedup",
  // "best","duplicate_of","advice","seconds","device_seconds"}, and from LedgerSum "input_tokens",
  // "cached_input_tokens","output_tokens","replayed","usd". "advice" is null without one, "usd" if
  // a price is unknown. A profile without counters adds "no_counters": why.
  void Finish(Trial* trial);

  // Returns true if there were calls that no trial includes yet.
  bool has_open_calls() const { return calls_->ledger().entries().size() > entered_; }
  double seconds() const { return spent_before_ + settings_.clock() - began_; }  // of all sessions
  int rounds() const { return rounds_; }              // replies of the Coder
  int without_gain() const { return without_gain_; }  // rounds in a row, up to the last
  // The costs of all sessions up to now.
  Ledger Costs() const;

 private:
  void Charge(Trial* trial) const;
  // Stores an incomplete trial.
  void KeepOpen(Trial trial) const;
  // The part of Refresh for a trial that is now refused.
  void Refuse(Trial* trial, const Findings& today);
  // Updates the counts of rounds and of rounds without a gain.
  void Count(const Trial& trial);

  Settings settings_;
  AgentCalls* const calls_;
  Population* const population_;
  const double began_;
  double marked_;              // when the last trial finished
  double spent_before_ = 0;    // seconds, of the resumed session
  double device_seconds_ = 0;  // of all trials
  size_t entered_ = 0;         // ledger entries that belong to a trial
  int rounds_ = 0;
  int without_gain_ = 0;
  // The next gain is measured against this time.
  double gained_ns_ = std::numeric_limits<double>::infinity();
};

}  // namespace cudaforge
