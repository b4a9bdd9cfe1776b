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

// Reads the reply of a Coder: one fenced block of JSON with the launch plan (as in
// Candidate::FromJson), and one with the source (cuda, cu, cpp, c++, cc, cxx, c, or no word).
// Ignores other text and blocks of other languages. Optional in the plan: scratch_bytes,
// constraints, tensor_maps (in one: strides, swizzle), and of a launch cluster and
// dynamic_shared_bytes (cuda) or grain (cpu). An integer may replace an expression. Other fields
// are dropped. For untrusted text: linear time and memory.
// kInvalidArgument, with a message for the Coder.
Result<Candidate> ParseCoderReply(std::string_view reply, Language language, std::string author);

// The common part of reply parsers: the plan in the reply, and the source.
struct CoderBlocks {
  Json plan;  // an object
  std::string source;
};
// `words`: languages of the fences that hold source. Errors as ParseCoderReply's.
Result<CoderBlocks> ReadCoderBlocks(std::string_view reply,
                                    std::span<const std::string_view> words);
// Adds the optional fields to a plan. Candidate::FromJson reports other mistakes.
void CompletePlan(Language language, Json* plan);

// Makes a candidate of a reply. Errors: kInvalidArgument, with a message for the Coder; kCancelled.
using ReplyReader = std::function<Result<Candidate>(std::string_view reply, std::string author)>;

struct Proposal {
  std::optional<Candidate> candidate;
  std::string refusal;  // without a candidate: what is wrong with the reply, for the Coder
  std::string reply;    // its text
  std::string model;    // the reply's model name
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
  // Calls the Coder with limits from Allow. An answer that violates the service's protocol is a
  // refused proposal, because another call may work. Errors: the provider's others.
  Result<Proposal> Propose(const Prompt& prompt, const ReplyLimits& limits, int round);

 private:
  Provider* const provider_;
  AgentCalls* const calls_;
  const ReplyReader read_;
};

}  // namespace cudaforge
