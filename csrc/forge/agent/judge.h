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

// Reads {"issue": "...", "plan": "..."}, mended as ParseJsonReply does; both not empty and at most
// 600 characters; other fields are dropped. Of several such objects none is taken.
// Errors: kInvalidArgument, with words for the Judge.
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

  // Asks, and once more where the reply cannot be read. Never an error: a Judge that cannot be
  // reached, or that the budget has no room for, has no advice to give.
  Opinion Advise(const Prompt& prompt, int round);

 private:
  Provider* const provider_;
  AgentCalls* const calls_;
};

}  // namespace cudaforge
