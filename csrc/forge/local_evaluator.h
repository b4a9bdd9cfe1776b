// The Evaluator of this machine. Candidates run one at a time; they compile beside that where
// Options::compilers has workers for it (ForgeRegion gives none).
#pragma once

#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "forge/evaluator.h"
#include "verify/checker.h"
#include "worker/worker_client.h"

namespace cudaforge {

// All that is passed in must outlive it.
class LocalEvaluator : public Evaluator {
 public:
  struct Options {
    bool metrics = false;            // what is proven is profiled, a new best more closely
    const Cancel* cancel = nullptr;  // looked at before each step; nullptr: never set
    // Each compiles one candidate at a time, beside the others and beside what runs. Empty: the
    // runner compiles.
    std::vector<CandidateRunner*> compilers = {};
  };
  LocalEvaluator(const OpSignature& region, CandidateRunner& runner, const RegionChecker& checker,
                 Options options);

  int slots() const override { return 1 + static_cast<int>(options_.compilers.size()); }
  void Submit(EvaluationRequest request) override;
  Evaluated Wait() override;
  double proof_seconds() const override;
  Json facts() override;

 private:
  // A candidate that compiled, and, once it was right on the first input set, its time.
  struct Built {
    std::string binary;
    Json resources;
    std::optional<double> ns;
  };
  struct Job {
    EvaluationRequest request;
    std::future<Result<CompileResult>> compiled;  // none: not begun
  };

  // Both fill in the verdict and what was measured. Errors as of Evaluated.
  Status Screen(Job* job, Built* built, Evaluation* out);
  Status Prove(const EvaluationRequest& request, const Built& built, Evaluation* out);
  // One run on input set `i`, checked.
  Status RunCase(size_t i, const RunPlan& plan, const EvaluationRequest& request,
                 const std::string& binary, Evaluation* out);
  void Profile(const EvaluationRequest& request, Evaluation* out);
  Result<Evaluation> Evaluate(Job* job);
  bool Cancelled() const { return options_.cancel != nullptr && options_.cancel->IsSet(); }

  const OpSignature& region_;
  CandidateRunner& runner_;
  const RegionChecker& checker_;
  const Options options_;
  std::vector<std::unique_ptr<std::mutex>> turns_;  // of the compilers
  size_t submitted_ = 0;
  std::deque<Job> jobs_;           // under way, oldest first
  std::map<int, Built> screened_;  // right on the first input set, by trial
  double slowest_case_ = 0;        // seconds
  std::optional<Json> facts_;
  std::string refusal_;  // why the runner cannot profile: asked once
};

// What becomes of one candidate, however long it takes.
Result<Evaluation> ProveCandidate(const OpSignature& region, const Candidate& candidate,
                                  CandidateRunner& runner, const RegionChecker& checker);

}  // namespace cudaforge
