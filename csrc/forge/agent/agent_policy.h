// The policy of a session of agents: what is known already is tried first, then round after round
// the strategy names what to go on from, until the budget is spent or nothing is gained any more.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/json.h"
#include "forge/agent/agent_prompts.h"
#include "forge/agent/agents.h"
#include "forge/agent/journal.h"
#include "forge/agent/llm_author.h"
#include "forge/agent/strategy.h"
#include "forge/forge.h"

namespace cudaforge {

// One trial at a time. All that is passed in must outlive it.
class AgentPolicy : public Policy {
 public:
  struct Parts {
    const AgentSettings& settings;
    const Cancel& cancel;
    const Strategy& strategy;
    const ForgeProgress& progress;
    double floor_ns;  // the least time that the device allows; 0: unknown
    LlmAuthor* author;
    AgentPrompts* prompts;
    Journal* journal;
  };
  AgentPolicy(Parts parts, const Population& population);

  std::vector<Brief> Ask(const Population& population, int slots) override;
  void Begin(Trial* trial) override;
  bool MayEvaluate(Trial* trial) override;
  bool Failed(Trial* trial, const Status& status) override;
  void Tell(Trial* trial, ProvenKernel* kernel) override;
  void TellAgain(Population* population, int id, Evaluation* found) override;

  std::optional<ProvenKernel> TakeBest() { return std::move(best_); }
  // Why the session ends now; empty: it goes on.
  std::string WhyStop() const;

 private:
  enum class Stage { kEarlier, kInterrupted, kStart, kRounds };

  // What is tried next; nothing: the session ends.
  std::optional<Brief> Next();
  // Where the start is what must be beaten: takes its time of today from the trial that ran it.
  void TakeRival(const Trial& start);
  // The candidate of the last earlier trial, whose session ended before its verdict; else nullptr.
  const Trial* Interrupted() const;
  void Keep(ProvenKernel* kernel);
  void End(const std::string& reason) {
    if (reason_.empty()) reason_ = reason;
  }

  const Parts parts_;
  const Population& population_;
  Stage stage_ = Stage::kEarlier;
  std::deque<int> earlier_;  // right ones of the session that is resumed, fastest first
  bool under_way_ = false;
  int faults_ = 0;       // in a row
  bool faulty_ = false;  // the trial that is about to be told is one of them
  std::optional<ProvenKernel> best_;
  std::string reason_;
};

}  // namespace cudaforge
