// The policy of an agents' session. It first tries kernels that are known. Then the strategy
// chooses each round's starting point, until the budget is spent or there is no gain.
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

// Runs one trial at a time. All arguments must outlive it.
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
  // Returns why the session ends now; empty: it continues.
  std::string WhyStop() const;

 private:
  enum class Stage { kEarlier, kInterrupted, kStart, kRounds };

  // Returns what to try next; nothing: the session ends.
  std::optional<Brief> Next();
  // If the start is the rival: takes the rival's time from the trial that ran it.
  void TakeRival(const Trial& start);
  // Returns the last earlier candidate without a verdict (its session ended); else nullptr.
  const Trial* Interrupted() const;
  void Keep(ProvenKernel* kernel);
  void End(const std::string& reason) {
    if (reason_.empty()) reason_ = reason;
  }

  const Parts parts_;
  const Population& population_;
  Stage stage_ = Stage::kEarlier;
  std::deque<int> earlier_;  // correct ones of the resumed session, fastest first
  bool under_way_ = false;
  int faults_ = 0;       // in a row
  bool faulty_ = false;  // the next trial to be reported is one of them
  std::optional<ProvenKernel> best_;
  std::string reason_;
};

}  // namespace cudaforge
