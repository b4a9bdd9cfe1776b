// What becomes of one candidate: compiled, verified and timed as the forge does it, then profiled.
#pragma once

#include <optional>
#include <string>

#include "base/cancel.h"
#include "base/json.h"
#include "base/status.h"
#include "forge/agent/findings.h"
#include "forge/forge.h"
#include "kernel/candidate.h"
#include "signature/op_signature.h"
#include "verify/checker.h"
#include "worker/worker_client.h"

namespace cudaforge {

struct Evaluation : Findings {
  std::optional<Trial> trial;  // when accepted
  Json verification;           // as SearchOutcome has it, when accepted
  double device_seconds = 0;   // spent running, timing and profiling, compilation apart
};

// Not thread-safe. All that is passed in must outlive it.
class Evaluator {
 public:
  // `metrics` false: nothing is profiled or derived.
  Evaluator(const OpSignature& signature, CandidateRunner& runner, const RegionChecker& checker,
            bool metrics, const Cancel& cancel);

  // What the device is and does, as CandidateRunner::Facts has it; an empty object where the runner
  // cannot say.
  const Json& facts() const { return facts_; }
  // The candidate alone, however long it takes. Profiled more closely when it is faster than
  // `best_ns`. Errors: kCancelled, else what is not the candidate's fault.
  Result<Evaluation> Evaluate(const Candidate& candidate, std::optional<double> best_ns);

 private:
  class Stoppable;
  void Profile(Evaluation* evaluation, int tier);

  const OpSignature& signature_;
  CandidateRunner& runner_;
  const RegionChecker& checker_;
  const bool metrics_;
  const Cancel& cancel_;
  Json facts_ = Json::object();
  std::string refusal_;  // why the runner cannot profile: asked once
};

}  // namespace cudaforge
