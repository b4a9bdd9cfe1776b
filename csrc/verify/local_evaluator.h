// The Evaluator in the verifier's process: one candidate at a time, each compiled first unless its
// request says what that came to.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "base/cancel.h"
#include "verify/evaluator.h"
#include "verify/region_verifier.h"
#include "worker/worker_client.h"

namespace cudaforge {

// All that is passed in must outlive it.
class LocalEvaluator : public Evaluator {
 public:
  // `runner` compiles and knows the device; `verifier` runs what was compiled. `device_index`: of
  // the region's device, which times are taken alone on.
  LocalEvaluator(const OpSignature& region, CandidateRunner& runner, RegionVerifier& verifier,
                 int device_index = 0);

  void Begin(const EvaluatorSettings& settings) override;
  int slots() const override { return 1; }
  void Submit(EvaluationRequest request) override;
  Evaluated Wait() override;
  double proof_seconds() const override;
  PhaseSeconds spent() const override;
  Json facts() override;

 private:
  // A candidate that compiled, and, once it was right on the first input set, its time.
  struct Built {
    std::string binary;
    Json resources;
    std::optional<double> ns;
  };

  // Both fill in the verdict and what was measured. Errors as of Evaluated.
  Status Screen(const EvaluationRequest& request, Built* built, Evaluation* out);
  Status Prove(const EvaluationRequest& request, const Built& built, Evaluation* out);
  // The verifier's candidate from now on, unless it is already.
  Status Load(const EvaluationRequest& request, const std::string& binary, Verdict* verdict);
  // One run on input set `i`, checked.
  Status RunSet(size_t i, Evaluation* out);
  void Profile(const EvaluationRequest& request, Evaluation* out);
  Result<Evaluation> Evaluate(const EvaluationRequest& request);
  bool Cancelled() const { return settings_.cancel != nullptr && settings_.cancel->IsSet(); }

  const OpSignature& region_;
  CandidateRunner& runner_;
  RegionVerifier& verifier_;
  const int device_index_;
  EvaluatorSettings settings_;
  std::deque<EvaluationRequest> requests_;  // under way, oldest first
  std::map<int, Built> screened_;           // right on the first input set, by trial
  std::optional<int> loaded_;               // the verifier's candidate, by trial
  int sets_run_ = 0;                        // by right candidates
  double slowest_set_ = 0;                  // seconds of a right candidate's run on one
  double compile_s_ = 0;
  std::optional<Json> facts_;
  std::string refusal_;  // why the runner cannot profile: asked once
};

}  // namespace cudaforge
