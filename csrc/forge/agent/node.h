// One round of a session as it stands in the lineage: what was asked, written and found.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "forge/agent/findings.h"
#include "forge/agent/judge.h"
#include "forge/agent/ledger.h"
#include "forge/prompts.h"
#include "kernel/candidate.h"

namespace cudaforge {

enum class StepKind { kStart, kSeed, kRepair, kOptimize };
std::string_view StepKindName(StepKind kind);  // "start", "seed", "repair", "optimize"

struct AgentNode : Findings {
  int id = 0;  // counts up over a session and those that resume it; events call it "round"
  std::optional<int> parent;
  StepKind kind = StepKind::kSeed;
  std::string session;
  std::string author;  // "agent:openai:gpt-5"; of a start its candidate's
  std::optional<Candidate> candidate;
  std::string reply;      // of a Coder, where no candidate could be read from it; cut
  bool answered = true;   // false: the Coder gave no reply, and the verdict says why
  bool evaluated = true;  // false: there is a candidate, and the session ended before its verdict
  std::optional<int> duplicate_of;  // the findings are that node's
  double seconds = 0;               // from the node before, or the session's start, to this one
  double device_seconds = 0;        // of them, spent running, timing and profiling the candidate
  std::optional<double> rival_ns;   // one call of what had to be beaten when the session began
  std::optional<Advice> advice;
  std::string silence;  // why a Judge that was asked gave no advice
  std::vector<std::string> hints;
  Json prompts = Json::array();
  std::vector<LedgerEntry> calls;
  // {"verdict","ns"} as they were before a session that was resumed ran the candidate again and
  // refused it; null where the first verdict stands.
  Json judged_before;

  // Whether the verdict is on what the Coder wrote: false of a round that ended before.
  bool judged() const { return answered && evaluated; }
  // Right on every input set, and timed.
  bool correct() const { return judged() && verdict.accepted() && ns.has_value(); }

  // As FORMAT.md has it.
  Json ToJson() const;
  // The inverse, for what a store gives back. kInvalidArgument names the field at fault.
  static Result<AgentNode> FromJson(const Json& json);
};

// What a node says of a prompt: {"name","version","sha256","documents"}, and where documents did
// not fit into it {"documents_left_out"}.
Json PromptNote(const Prompt& prompt);

// Equal for candidates with the same source, launch plan and constraints: 64 digits.
std::string CandidateDigest(const Candidate& candidate);

// The fastest correct node, the earliest of equals; nullptr where there is none.
const AgentNode* BestNode(const std::vector<AgentNode>& nodes);

// Of a region's lineage, the nodes of the session that wrote last; empty where no agent did.
std::vector<Json> LastSession(const std::vector<Json>& lineage);

}  // namespace cudaforge
