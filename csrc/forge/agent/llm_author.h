// The agents as an author: a Judge names one thing to change, and a Coder writes a kernel.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "forge/agent/agent_calls.h"
#include "forge/agent/agent_prompts.h"
#include "forge/agent/coder.h"
#include "forge/agent/journal.h"
#include "forge/forge.h"
#include "llm/provider.h"

namespace cudaforge {

class LlmAuthor : public Author {
 public:
  struct Options {
    Provider* coder = nullptr;
    Provider* judge = nullptr;  // nullptr: no advice
    std::string session;
    // Returns new hints by the user, for the next prompts. May be empty.
    std::function<std::vector<std::string>()> hints;
    ForgeProgress progress;
  };
  // All arguments must outlive it.
  LlmAuthor(Options options, ReplyReader read, const AgentPrompts& prompts, AgentCalls* calls,
            Journal* journal)
      : options_(std::move(options)),
        prompts_(prompts),
        calls_(*calls),
        journal_(*journal),
        coder_(options_.coder, calls, std::move(read)) {}

  std::string name() const override { return coder_.author(); }
  // kInvalidArgument: no prompt could be made, or the budget is too small for a call (limit()).
  // kCancelled. Else: the Coder's provider gave no reply.
  Status Write(const Brief& brief, const Population& population, Trial* trial) override;

  int asked() const { return asked_; }  // calls of the Coder
  // The limit that prevented another call: "seconds", "tokens" or "usd".
  const std::string& limit() const { return limit_; }

 private:
  std::optional<Advice> AskJudge(const Step& step, const Population& population, Trial* trial);

  const Options options_;
  const AgentPrompts& prompts_;
  AgentCalls& calls_;
  Journal& journal_;
  LlmCoder coder_;
  int asked_ = 0;
  std::string limit_;
};

}  // namespace cudaforge
