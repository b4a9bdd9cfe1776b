// The forge: one loop over authors, who write candidates, an evaluator, which judges them, and a
// policy, which decides what is asked next. "Prove one candidate" is the evaluator's; every search,
// by generators or by agents, is a Policy over this loop.
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

// What a policy asks for.
struct Brief {
  StepKind kind = StepKind::kSeed;
  Author* author = nullptr;  // writes the candidate; nullptr: one of the next two says it
  std::optional<Candidate> candidate = {};  // to be tried as it is
  std::optional<int> again = {};            // this trial is evaluated again, in its own place
  std::vector<int> parents = {};            // trials to go on from
  Depth depth = Depth::kProof;
  // As of EvaluationRequest.
  double end = std::numeric_limits<double>::infinity();
  double screen_end = std::numeric_limits<double>::infinity();
  double screen_end_right = std::numeric_limits<double>::infinity();
};

// Writes candidates: a generator, an LLM, a command.
class Author {
 public:
  virtual ~Author() = default;
  virtual std::string name() const = 0;  // "generator:rows", "agent:openai:gpt-5"
  // Fills in trial->candidate; without one, the trial's verdict says why what it wrote is none.
  // kNotFound: it has nothing more to write. Other errors: it could not be asked.
  virtual Status Write(const Brief& brief, const Population& population, Trial* trial) = 0;
};

// Decides what is tried, and when it ends. Called from the forge's thread alone.
class Policy {
 public:
  virtual ~Policy() = default;
  // At most `slots` briefs to work on now. None while nothing is under way: the forge ends.
  virtual std::vector<Brief> Ask(const Population& population, int slots) = 0;
  // A trial begins: before its author is asked.
  virtual void Begin(Trial*) {}
  // It has a candidate, which is to be evaluated. False: it is not; the trial's verdict says why.
  virtual bool MayEvaluate(Trial*) { return true; }
  // Its author could not be asked, or its candidate could not be judged through no fault of its
  // own: kTimeout where the brief's limits ended it, kCancelled, else what was missing. True: the
  // trial is kept, with the verdict that is set here; Tell follows.
  virtual bool Failed(Trial*, const Status&) { return false; }
  // `author` has nothing more to write. Not to be asked again.
  virtual void NothingMore(const Author&) {}
  // The trial is finished, and about to join the population. `kernel`: what was proven, or nullptr.
  virtual void Tell(Trial* trial, ProvenKernel* kernel) = 0;
  // A trial of the population was evaluated again, with these findings (Brief::again).
  virtual void TellAgain(Population*, int, Evaluation*) {}
};

// Runs until the policy asks for nothing more. Candidates whose source, plan and constraints were
// tried before are not run again: the findings are copied (Trial::duplicate_of).
void Forge(Policy& policy, Evaluator& evaluator, Population* population);

// Takes a progress event, {"event": ...}. Called from the forge's thread.
using ForgeProgress = std::function<void(const Json& event)>;

// What a search came to.
struct SearchOutcome {
  std::optional<ProvenKernel> best;  // right on every input set, the fastest by the evaluator
  std::vector<Trial> trials;         // of this process, oldest first
  std::string reason;                // why there is no best, or why the search ended
  bool out_of_time = false;          // the budget ended it: more might have been found
};

}  // namespace cudaforge
