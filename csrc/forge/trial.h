// Trial: one candidate of a forge and what became of it; and the population of them. In the store
// they are the region's lineage.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "forge/agent/judge.h"
#include "forge/agent/ledger.h"
#include "forge/prompts.h"
#include "kernel/candidate.h"
#include "verify/evaluator.h"

namespace cudaforge {

enum class StepKind { kStart, kSeed, kRepair, kOptimize };
std::string_view StepKindName(StepKind kind);  // "start", "seed", "repair", "optimize"

struct Trial : Findings {
  int id = 0;  // counts up over a session and those that resume it; events call it "round"
  std::vector<int> parents;  // the trials that it was made from
  StepKind kind = StepKind::kSeed;
  std::string author;  // "generator:rows", "agent:openai:gpt-5"; of a start its candidate's
  std::optional<Candidate> candidate;
  bool answered = true;   // false: the author gave no reply, and the verdict says why
  bool evaluated = true;  // false: there is a candidate, and the session ended before its verdict
  std::optional<int> duplicate_of;  // the findings are that trial's
  double seconds = 0;               // of agents: since the trial before, or the session's start
  double device_seconds = 0;        // of them, spent running, timing and profiling the candidate

  // Of agents alone.
  std::string session;             // empty: no agents' trial
  std::string reply;               // of a Coder, where no candidate could be read from it; cut
  std::optional<double> rival_ns;  // one call of what had to be beaten when the session began
  std::optional<Advice> advice;
  std::string silence;  // why a Judge that was asked gave no advice
  std::vector<std::string> hints;
  Json prompts = Json::array();
  std::vector<LedgerEntry> calls;
  // {"verdict","ns"} as they were before a session that was resumed ran the candidate again and
  // refused it; null where the first verdict stands.
  Json judged_before;

  // Whether the verdict is on what the author wrote: false of a round that ended before.
  bool judged() const { return answered && evaluated; }
  // Right on every input set that was tried, and timed.
  bool correct() const { return judged() && verdict.accepted() && ns.has_value(); }
  Findings& findings() { return *this; }

  // As FORMAT.md has it: of a generator's trial what it chose, not its source.
  Json ToJson() const;
  // The inverse, for what a store gives back of an agents' trial. kInvalidArgument names the field
  // at fault.
  static Result<Trial> FromJson(const Json& json);
};

// The trials of one forge. Not thread-safe.
class Population {
 public:
  const std::vector<Trial>& trials() const { return trials_; }  // oldest first
  auto begin() { return trials_.begin(); }
  auto end() { return trials_.end(); }
  const Trial* Find(int id) const;
  Trial* Find(int id) { return const_cast<Trial*>(std::as_const(*this).Find(id)); }
  // The trial that ran this candidate, by its digest; else nullptr.
  const Trial* FindTried(const Candidate& candidate) const;
  // The fastest correct one, the earliest of equals; else nullptr.
  const Trial* best() const;
  int next_id() const { return next_id_; }  // above those of all trials
  void Add(Trial trial);
  std::vector<Trial> TakeTrials() && { return std::move(trials_); }

 private:
  std::vector<Trial> trials_;
  std::map<std::string, int> tried_;  // the first trial of each candidate that was run, by digest
  int next_id_ = 0;
};

// What a trial says of a prompt: {"name","version","sha256","documents"}, and where documents did
// not fit into it {"documents_left_out"}.
Json PromptNote(const Prompt& prompt);

// Equal for candidates with the same source, launch plan and constraints: 64 digits.
std::string CandidateDigest(const Candidate& candidate);

// As Population::best.
const Trial* BestTrial(const std::vector<Trial>& trials);

// Of a region's lineage, the trials of the session that wrote last; empty where no agent did.
std::vector<Json> LastSession(const std::vector<Json>& lineage);

}  // namespace cudaforge
