// Prompts for agents: templates under csrc/forge/prompts, filled with values; docs/messages.md
// lists those of each template. All must be given; others are ignored. Long values are cut in the
// middle (never source and launch_plan), which bounds the prompt's size. Untrusted text (source,
// log, message, evidence, tried, the Judge's answer, measurements) is put between marks that it
// cannot contain. The system message says that it is data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "forge/knowledge.h"
#include "llm/message.h"

namespace cudaforge {

inline constexpr size_t kMaxTried = 24;

struct Prompt {
  std::string name;  // "coder_seed"
  int version = 0;   // the template's version
  // One system and one user message. judge_again: only a user message, which continues after the
  // Judge's messages and its unreadable reply.
  std::vector<Message> messages;
  std::string sha256;                  // of the canonical JSON of `messages`
  std::vector<std::string> documents;  // ids of those included, in order
  // Ids of matches that did not fit. The caller of RenderPrompt sets them.
  std::vector<std::string> documents_left_out;
};

// Deterministic, thread-safe. kNotFound: no template of that name. kInvalidArgument names a value
// that is missing, or must not be empty. REQUIRES: no null in `documents`.
Result<Prompt> RenderPrompt(std::string_view name, const Json& values,
                            const std::vector<const Document*>& documents);

}  // namespace cudaforge
