#include "forge/agent/evaluate.h"

#include <utility>

#include "base/clock.h"
#include "measure/roofline.h"

namespace cudaforge {
namespace {

// For every right candidate all that the Judge reasons from: traffic, occupancy, hit rates and what
// warps wait for, in 4 replays of the kernel. The throughputs, which need 9 to 13, for a new best
// alone (TierMetrics).
constexpr int kOrdinaryTier = 3;
constexpr int kBestTier = 4;
// A candidate was paid for: it is finished whatever the clock says.
constexpr double kAmpleSeconds = 1e9;

Status CancelledStatus() { return Status::Cancelled("cancelled"); }

// Adds the time from its making to its end.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() { *seconds_ += SteadySeconds() - start_; }

 private:
  double* const seconds_;
  const double start_ = SteadySeconds();
};

}  // namespace

// Looks at `cancel` before each of the runner's steps, and adds up the seconds of those that use
// the device. Steps themselves end early where the runner was given the same request to stop
// (WorkerOptions::cancel).
class Evaluator::Stoppable : public CandidateRunner {
 public:
  Stoppable(CandidateRunner& runner, const Cancel& cancel, double* device_seconds)
      : runner_(runner), cancel_(cancel), device_seconds_(device_seconds) {}
  Result<CompileResult> Compile(const Candidate& candidate) override {
    if (cancel_.IsSet()) return CancelledStatus();
    return runner_.Compile(candidate);
  }
  Result<RunOutput> Run(const std::string& binary, const Candidate& candidate,
                        const OpSignature& signature, const InputSet& inputs,
                        const RunPlan& plan) override {
    if (cancel_.IsSet()) return CancelledStatus();
    const Stopwatch watch(device_seconds_);
    return runner_.Run(binary, candidate, signature, inputs, plan);
  }
  Result<double> Time(const std::string& binary, const Candidate& candidate,
                      const OpSignature& signature, const InputSet& inputs,
                      const TimingPlan& plan) override {
    if (cancel_.IsSet()) return CancelledStatus();
    const Stopwatch watch(device_seconds_);
    return runner_.Time(binary, candidate, signature, inputs, plan);
  }

 private:
  CandidateRunner& runner_;
  const Cancel& cancel_;
  double* const device_seconds_;
};

Evaluator::Evaluator(const OpSignature& signature, CandidateRunner& runner,
                     const RegionChecker& checker, bool metrics, const Cancel& cancel)
    : signature_(signature),
      runner_(runner),
      checker_(checker),
      metrics_(metrics),
      cancel_(cancel) {
  if (cancel_.IsSet()) return;
  if (Result<Json> facts = runner_.Facts(); facts.ok() && facts->is_object()) {
    facts_ = *std::move(facts);
  }
}

Result<Evaluation> Evaluator::Evaluate(const Candidate& candidate, std::optional<double> best_ns) {
  Evaluation out;
  Stoppable runner(runner_, cancel_, &out.device_seconds);
  Result<Proof> proof = ProveCandidate(signature_, candidate, runner, checker_, kAmpleSeconds);
  const bool accepted = proof.ok() && proof->trial.verdict.accepted();
  if (cancel_.IsSet() && !accepted) return CancelledStatus();
  CF_RETURN_IF_ERROR(proof.status());
  out.verdict = proof->trial.verdict;
  out.ns = proof->trial.worker_ns;
  out.resources = proof->trial.resources;
  if (!accepted) return out;
  out.trial = std::move(proof->trial);
  out.verification = std::move(proof->verification);
  const bool best = !best_ns.has_value() || *out.ns < *best_ns;
  if (metrics_) Profile(&out, best ? kBestTier : kOrdinaryTier);
  return out;
}

void Evaluator::Profile(Evaluation* evaluation, int tier) {
  if (refusal_.empty() && !cancel_.IsSet()) {
    const Stopwatch watch(&evaluation->device_seconds);
    Result<Json> profile = runner_.Profile(evaluation->trial->binary, evaluation->trial->candidate,
                                           signature_, checker_.inputs(0), tier);
    if (profile.ok()) {
      evaluation->profile = AtMeasuredTime(*std::move(profile), evaluation->ns.value_or(0));
    } else if (profile.status().code() == StatusCode::kUnsupported) {
      refusal_ = profile.status().message();
    } else {
      evaluation->profile = {{"note", profile.status().ToString()}};
    }
  }
  if (!refusal_.empty()) evaluation->profile = {{"note", refusal_}};
  evaluation->derived =
      DerivedFacts(evaluation->profile, facts_, signature_, evaluation->ns.value_or(0));
}

}  // namespace cudaforge
