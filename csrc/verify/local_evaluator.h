// The Evaluator in the verifier's process. Handles one candidate at a time, and compiles it unless
// the request has the result.
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

// All arguments must outlive it.
class LocalEvaluator : public Evaluator {
 public:
  // `runner` compiles and describes the device; `verifier` runs the binary. `device_index`: the
  // device of the region, locked while timing.
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
  // A compiled candidate, and its time if it was correct on the first input set.
  struct Built {
    std::string binary;
    Json resources;
    std::optional<double> ns;
    double prepare_ns = 0;
  };

  // Both set the verdict and the measurements. Errors as for Evaluated.
  Status Screen(const EvaluationRequest& request, Built* built, Evaluation* out);
  Status Prove(const EvaluationRequest& request, const Built& built, Evaluation* out);
  // Loads the candidate into the verifier, unless it is loaded.
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
  std::deque<EvaluationRequest> requests_;  // running, oldest first
  std::map<int, Built> screened_;           // correct on the first input set, by trial
  std::optional<int> loaded_;               // the verifier's candidate, by trial
  int sets_run_ = 0;                        // by correct candidates
  double slowest_set_ = 0;                  // seconds of a correct candidate's run on one
  double compile_s_ = 0;
  std::optional<Json> facts_;
  std::string refusal_;  // why the runner cannot profile
};

}  // namespace cudaforge
