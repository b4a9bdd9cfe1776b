// The forge: one loop over authors, who write candidates, an evaluator, which judges them, and a
// policy, which chooses the next step. Every search, by generators or by agents, is a Policy over
// this loop.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "forge/trial.h"
#include "kernel/candidate.h"
#include "verify/evaluator.h"

namespace cudaforge {

class Author;

// One request of a policy.
struct Brief {
  StepKind kind = StepKind::kSeed;
  Author* author = nullptr;  // writes the candidate; nullptr: use one of the next two
  std::optional<Candidate> candidate = {};  // to be tried unchanged
  std::optional<int> again = {};            // evaluate this trial another time, in place
  std::vector<int> parents = {};            // trials to build on
  Depth depth = Depth::kProof;
  // As in EvaluationRequest.
  double end = std::numeric_limits<double>::infinity();
  double screen_end = std::numeric_limits<double>::infinity();
  double screen_end_right = std::numeric_limits<double>::infinity();
};

// Writes candidates: a generator, an LLM, a command.
class Author {
 public:
  virtual ~Author() = default;
  virtual std::string name() const = 0;  // "generator:rows", "agent:openai:gpt-5"
  // Sets trial->candidate. Without one, the trial's verdict says why the output is no candidate.
  // kNotFound: the author has nothing more to write. Other errors: it could not be reached.
  virtual Status Write(const Brief& brief, const Population& population, Trial* trial) = 0;
};

// Decides what is tried, and when to stop. Called only from the forge's thread.
class Policy {
 public:
  virtual ~Policy() = default;
  // Returns at most `slots` briefs to start now. The forge ends if it returns none and no trial is
  // running.
  virtual std::vector<Brief> Ask(const Population& population, int slots) = 0;
  // A trial begins; its author has not been called yet.
  virtual void Begin(Trial*) {}
  // The trial has a candidate. Returns false to skip its evaluation; the trial's verdict then says
  // why.
  virtual bool MayEvaluate(Trial*) { return true; }
  // The author failed, or the candidate could not be judged for a reason that is not its fault.
  // kTimeout: the brief's limits were reached. kCancelled. Else: what was missing. Returns true to
  // keep the trial and finish it, with the verdict that it sets.
  virtual bool Failed(Trial*, const Status&) { return false; }
  // `author` has nothing more to write. The policy must not use it any more.
  virtual void NothingMore(const Author&) {}
  // The trial is finished, and will join the population. `kernel`: what was proven, or nullptr.
  virtual void Tell(Trial* trial, ProvenKernel* kernel) = 0;
  // A trial of the population was evaluated a second time (see Brief), with these findings.
  virtual void TellAgain(Population*, int, Evaluation*) {}
};

// Runs until the policy has no more briefs. A candidate with the same source, plan and constraints
// as an earlier one is not run: the findings are copied (Trial::duplicate_of).
void Forge(Policy& policy, Evaluator& evaluator, Population* population);

// Receives a progress event, {"event": ...}. Called from the forge's thread.
using ForgeProgress = std::function<void(const Json& event)>;

// The result of a search.
struct SearchOutcome {
  std::optional<ProvenKernel> best;  // correct on every input set; the fastest by the evaluator
  std::vector<Trial> trials;         // of this process, oldest first
  std::string reason;                // why there is no best, or why the search ended
  bool out_of_time = false;          // the budget ended it: a longer search might find more
};

}  // namespace cudaforge
