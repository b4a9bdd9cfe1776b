// What a session of agents has done so far: what its trials cost, and what they gained; each is
// stored and told as it goes.
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

// Called with a trial when it begins to cost something and again when it is finished; the later one
// with the same id replaces the earlier. From the session's thread: the caller stores it
// (KernelStore::AddLineage).
using NodeSink = std::function<void(const Json& trial)>;

// Not thread-safe. All that is passed in must outlive it.
class Journal {
 public:
  struct Settings {
    std::string session;  // its name
    // Of what must be beaten; nothing: unknown.
    std::optional<double> rival_ns;
    std::function<double()> clock;  // seconds
    const NodeSink* sink;
    std::function<void(const Json& event)> progress;  // may be empty
  };
  Journal(Settings settings, AgentCalls* calls, Population* population);

  // Takes over the trials of the session that is resumed, and what they spent, and tells of it:
  // {"event":"resumed","nodes","ledger"}. What cannot be read is passed over. Errors:
  // kInvalidArgument where a limit in dollars meets spending whose price is unknown.
  Status Load(const std::vector<Json>& earlier, const Prices& prices);
  // An earlier trial's candidate was run again, with this result: its findings are today's. Where
  // it is right, the other trials, which were slower then, stay slower. Where it is not, it and its
  // duplicates are stored again in their own place, and each is told:
  // {"event":"rejudged","round","before","verdict","message"}.
  void Refresh(int id, const Findings& today);

  // From now on what must be beaten takes `ns`.
  void SetRival(double ns) { settings_.rival_ns = ns; }
  std::optional<double> rival_ns() const { return settings_.rival_ns; }

  // Fills in what every trial of this session has.
  void Begin(Trial* trial) const;
  // Stores a trial whose candidate is about to be run, for the session that finishes this one if it
  // is killed.
  void KeepUnevaluated(Trial trial) const;
  // Stores a trial whose Coder is about to be asked, for what was spent on it if the session is
  // killed.
  void KeepUnanswered(Trial trial) const;
  // How many trials hold this candidate, and no verdict because the session was cut off.
  int Interrupted(const Candidate& candidate) const;
  // The trial is complete: charged with the calls and the time since the last one, stored in place
  // of what was kept under its id, and told: {"event":"candidate","round","kind","verdict",
  // "message","ns","speedup","best","duplicate_of","advice","seconds","device_seconds"} with its
  // calls' "input_tokens","cached_input_tokens","output_tokens","replayed","usd", as LedgerSum has
  // them; "advice" is null where there was none, "usd" where the price of a call is unknown. Of a
  // profile without any hardware counter also "no_counters": why.
  void Finish(Trial* trial);

  // Calls were made that belong to no trial yet.
  bool has_open_calls() const { return calls_->ledger().entries().size() > entered_; }
  double seconds() const { return spent_before_ + settings_.clock() - began_; }  // all sessions'
  int rounds() const { return rounds_; }                                         // Coder's replies
  int without_gain() const { return without_gain_; }                             // the last of them
  // Of all sessions, with the work of their trials up to now.
  Ledger Costs() const;

 private:
  void Charge(Trial* trial) const;
  // Stores a trial that is not complete.
  void KeepOpen(Trial trial) const;
  // Refresh of a trial that is refused now.
  void Refuse(Trial* trial, const Findings& today);
  // Whether it was a round, and whether it gained something.
  void Count(const Trial& trial);

  Settings settings_;
  AgentCalls* const calls_;
  Population* const population_;
  const double began_;
  double marked_;              // when the last trial was finished
  double spent_before_ = 0;    // seconds, of the session that is resumed
  double device_seconds_ = 0;  // of all trials
  size_t entered_ = 0;         // ledger entries that belong to a trial
  int rounds_ = 0;
  int without_gain_ = 0;
  // The time that the next gain is measured against.
  double gained_ns_ = std::numeric_limits<double>::infinity();
};

}  // namespace cudaforge
