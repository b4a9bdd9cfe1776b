// Prompts for agents: templates under csrc/forge/prompts, filled with values. A value is text, a
// number, an object (printed as lines "name: value", inner names joined by dots) or a list of
// texts. null, false, "" and [] are empty. Every value of a template must be given. Only those
// marked ? may be empty. Other values are ignored.
//
//   coder_seed      language arch region device floor? rival? tried? hints?
//   coder_repair    language arch region device floor? rival? tried? hints? source launch_plan
//                   verdict message? evidence? log? judge_issue? judge_plan?
//   coder_optimize  language arch region device floor? rival? tried? hints? source launch_plan
//                   time_us resources? profile? derived? judge_issue? judge_plan?
//   judge_repair    language arch region tried? hints? source launch_plan verdict message?
//                   evidence? log?
//   judge_optimize  language arch region device floor? rival? tried? hints? source launch_plan
//                   time_us resources? profile? derived?
//   judge_again     fault
//
//   language        text       "cuda", "cpu", "triton"
//   arch            text       "cuda:sm_90a"
//   region          text       DescribeRegion
//   device          object     properties and measured rates: CandidateRunner::Facts
//   floor           object     the least the region needs: {"needed_bytes", "floor_us", ...}
//   rival           text       the time to beat: "inductor, 12.4 us"
//   tried           texts      one line an attempt, oldest first; the last kMaxTried are shown
//   hints           texts      the user's hints; the last kMaxTried are shown
//   source          text       the kernel's source, whole
//   launch_plan     text       its plan in a Coder's form: {"launches", "scratch_bytes", ...}
//   verdict         text       VerdictName
//   message         text       Verdict::message
//   evidence        object     Verdict::evidence without the compiler's log
//   log             text       the compiler's log
//   time_us         number     median microseconds of this kernel
//   resources       object     registers, spills, shared memory, by kernel
//   profile         object     counters of this kernel
//   derived         object     DerivedFacts of that profile
//   judge_issue, judge_plan    text       the Judge's answer; both or neither
//   fault           text       why the Judge's reply could not be read
//
// Long values are cut in the middle (never source and launch_plan), which bounds the prompt's size.
// Untrusted text (source, log, message, evidence, tried, the Judge's answer, measurements) is put
// between marks that it cannot contain. The system message says that it is data.
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
