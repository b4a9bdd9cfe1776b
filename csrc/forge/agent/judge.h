// The Judge: names one thing to repair, or one bottleneck to attack.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "forge/agent/agent_calls.h"
#include "forge/prompts.h"
#include "llm/provider.h"

namespace cudaforge {

struct Advice {
  std::string issue;
  std::string plan;
};

// Reads {"issue": "...", "plan": "..."}, repaired as in ParseJsonReply. Both must be non-empty,
// with at most 600 characters. Drops other fields. More than one object is an error.
// kInvalidArgument, with a message for the Judge.
Result<Advice> ParseJudgeReply(std::string_view reply);

class LlmJudge {
 public:
  struct Opinion {
    std::optional<Advice> advice;
    std::string silence;          // without advice: why
    std::vector<Prompt> prompts;  // that were sent
  };

  // `provider` and `calls` must outlive this object.
  LlmJudge(Provider* provider, AgentCalls* calls) : provider_(provider), calls_(calls) {}

  // Calls the Judge, and a second time if the reply is unreadable. Never an error: a Judge that
  // fails, or is over the budget, gives no advice.
  Opinion Advise(const Prompt& prompt, int round);

 private:
  Provider* const provider_;
  AgentCalls* const calls_;
};

}  // namespace cudaforge
