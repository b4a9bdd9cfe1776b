// The Coder: writes candidates.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "forge/agent/agent_calls.h"
#include "forge/prompts.h"
#include "kernel/candidate.h"
#include "llm/provider.h"

namespace cudaforge {

// Reads the reply of a Coder: one fenced block of JSON with the launch plan, {"launches",
// "scratch_bytes", "constraints"} as Candidate::FromJson has them, and one fenced block with the
// source (cuda, cu, cpp, c++, cc, cxx, c, or no word at all). Blocks of other languages and text
// around them are passed over. May be left out of the plan: scratch_bytes, constraints, and of a
// launch cluster and dynamic_shared_bytes (cuda) or grain (cpu); an integer may stand where an
// expression is wanted. Other fields are dropped: the language and the author are the caller's.
// Linear time and memory, for text that may come from anywhere. Errors: kInvalidArgument, with
// words for the Coder.
Result<Candidate> ParseCoderReply(std::string_view reply, Language language, std::string author);

struct Proposal {
  std::optional<Candidate> candidate;
  std::string refusal;  // without a candidate: why the reply is none, in words for the Coder
  std::string reply;    // its text
  std::string model;    // as the reply names it
};

class LlmCoder {
 public:
  // `provider` and `calls` must outlive this object.
  LlmCoder(Provider* provider, AgentCalls* calls, Language language)
      : provider_(provider), calls_(calls), language_(language) {}

  // "agent:openai:gpt-5"
  std::string author() const { return "agent:" + provider_->name(); }
  Allowance Allow(const Prompt& prompt) const {
    return calls_->Allow(*provider_, AgentRole::kCoder, prompt);
  }
  // Asks with limits that Allow gave. An answer of the service that its protocol does not allow is
  // a refused proposal, as its author may do better. Errors: the provider's others.
  Result<Proposal> Propose(const Prompt& prompt, const ReplyLimits& limits, int round);

 private:
  Provider* const provider_;
  AgentCalls* const calls_;
  const Language language_;
};

}  // namespace cudaforge
