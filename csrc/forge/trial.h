// Trial: one candidate of a forge and its result. Population: the trials of a forge. The store
// keeps them as the region's lineage.
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
  int id = 0;  // counts over a session and those that resume it; events call it "round"
  std::vector<int> parents;  // the trials that it was made from
  StepKind kind = StepKind::kSeed;
  std::string author;  // "generator:rows", "agent:openai:gpt-5"; of a start: its candidate's author
  std::optional<Candidate> candidate;
  bool answered = true;             // false: the author did not reply, and the verdict says why
  bool evaluated = true;            // false: the session ended between candidate and verdict
  std::optional<int> duplicate_of;  // this trial's findings are copied from that one
  double seconds = 0;               // of agents: since the previous trial, or the session's start
  double device_seconds = 0;  // of `seconds`, spent running, timing and profiling the candidate

  // Set for agents only.
  std::string session;             // empty: no agents' trial
  std::string reply;               // of a Coder, if it held no readable candidate; shortened
  std::optional<double> rival_ns;  // one call of the rival when the session began
  std::optional<Advice> advice;
  std::string silence;  // why a Judge gave no advice
  std::vector<std::string> hints;
  Json prompts = Json::array();
  std::vector<LedgerEntry> calls;
  // {"verdict","ns"} before a resumed session re-tested the candidate and refused it; null if the
  // first verdict stands.
  Json judged_before;

  // Returns true if the verdict is about what the author wrote. False if the round ended early.
  bool judged() const { return answered && evaluated; }
  // Correct on every input set that was tried, and timed.
  bool correct() const { return judged() && verdict.accepted() && ns.has_value(); }
  Findings& findings() { return *this; }

  // The form is in FORMAT.md. A generator's trial has its parameters, not its source.
  Json ToJson() const;
  // Parses an agents' trial from a store. kInvalidArgument names the bad field.
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
  // Returns the trial that ran this candidate, by its digest; else nullptr.
  const Trial* FindTried(const Candidate& candidate) const;
  // Returns the fastest correct trial, the earliest of equals; else nullptr.
  const Trial* best() const;
  int next_id() const { return next_id_; }  // above all ids so far
  void Add(Trial trial);
  std::vector<Trial> TakeTrials() && { return std::move(trials_); }

 private:
  std::vector<Trial> trials_;
  std::map<std::string, int> tried_;  // the first trial of each candidate that was run, by digest
  int next_id_ = 0;
};

// The JSON for a trial's prompt: {"name","version","sha256","documents"}, plus
// {"documents_left_out"} if some did not fit.
Json PromptNote(const Prompt& prompt);

// Equal for candidates with the same source, launch plan and constraints: 64 digits.
std::string CandidateDigest(const Candidate& candidate);

// As Population::best.
const Trial* BestTrial(const std::vector<Trial>& trials);

// Returns the trials of the session that wrote last to a region's lineage; empty if no agent did.
std::vector<Json> LastSession(const std::vector<Json>& lineage);

}  // namespace cudaforge
