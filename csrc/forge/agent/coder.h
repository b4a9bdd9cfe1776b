// The Coder: writes candidates.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

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

// What ParseCoderReply and its kin begin with: the plan as it stands in the reply, and the source.
struct CoderBlocks {
  Json plan;  // an object
  std::string source;
};
// `words`: of the fences that hold source. Errors as ParseCoderReply's.
Result<CoderBlocks> ReadCoderBlocks(std::string_view reply,
                                    std::span<const std::string_view> words);
// Adds to a plan what may be left out of it. Whatever is wrong otherwise, Candidate::FromJson says.
void CompletePlan(Language language, Json* plan);

// Makes a candidate of a reply. Errors: kInvalidArgument, with words for the Coder; kCancelled.
using ReplyReader = std::function<Result<Candidate>(std::string_view reply, std::string author)>;

struct Proposal {
  std::optional<Candidate> candidate;
  std::string refusal;  // without a candidate: why the reply is none, in words for the Coder
  std::string reply;    // its text
  std::string model;    // as the reply names it
};

class LlmCoder {
 public:
  // `provider` and `calls` must outlive this object.
  LlmCoder(Provider* provider, AgentCalls* calls, ReplyReader read)
      : provider_(provider), calls_(calls), read_(std::move(read)) {}

  // "agent:openai:gpt-5"
  std::string author() const { return AgentAuthor(provider_->name()); }
  Allowance Allow(const Prompt& prompt) const {
    return calls_->Allow(*provider_, AgentRole::kCoder, prompt);
  }
  // Asks with limits that Allow gave. An answer of the service that its protocol does not allow is
  // a refused proposal, as its author may do better. Errors: the provider's others.
  Result<Proposal> Propose(const Prompt& prompt, const ReplyLimits& limits, int round);

 private:
  Provider* const provider_;
  AgentCalls* const calls_;
  const ReplyReader read_;
};

}  // namespace cudaforge
