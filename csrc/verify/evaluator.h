// Evaluator: compiles, verifies and times candidates, in this or another process.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "base/cancel.h"
#include "base/json.h"
#include "base/status.h"
#include "kernel/candidate.h"
#include "kernel/verdict.h"
#include "signature/device_arch.h"
#include "signature/op_signature.h"
#include "target/target.h"
#include "verify/phase_seconds.h"

namespace cudaforge {

// Increase it if the verifier refuses something that it accepted before, or if existing generator
// kernels should be replaced.
inline constexpr int kVerifierVersion = 12;

// The region and device that a kernel is for.
struct Task {
  OpSignature region;
  DeviceArch arch;
};

// How much of a candidate is checked.
enum class Depth {
  kScreen,  // correct on the first input set; timed
  kProof,   // correct on every input set; timed
};

// The results of running a candidate.
struct Findings {
  Verdict verdict;
  std::optional<double> ns;  // on the first input set, if correct there
  double prepare_ns = 0;     // of preparing its operands once; 0: there are none
  Json resources = Json::object();
  Json profile;  // null: not profiled
  Json derived;  // null: not timed
};

// A kernel that is correct on every input set.
struct ProvenKernel {
  Candidate candidate;
  std::string binary;
  double ns = 0;
  Json verification;      // {"report": RegionVerifier::Report, "cases": [names]}
  double prepare_ns = 0;  // as in Findings
};

struct Evaluation {
  Findings findings;
  std::optional<ProvenKernel> kernel;  // if a proof accepted
  double seconds = 0;
  double device_seconds = 0;  // of `seconds`, spent running, timing and profiling
};

struct EvaluationRequest {
  int id = 0;  // of the trial
  Candidate candidate;
  Depth depth = Depth::kProof;
  // For screenings: nanoseconds of the best so far. Timing stops early for a candidate that takes
  // twice as long; one that is not faster is kTooSlow.
  std::optional<double> best_ns = std::nullopt;
  // A proof stops if it is expected to end after this (SteadySeconds).
  double end = std::numeric_limits<double>::infinity();
  // A screening begins no step after these (SteadySeconds), except compiling. The second applies
  // after the first input set is passed.
  double screen_end = std::numeric_limits<double>::infinity();
  double screen_end_right = std::numeric_limits<double>::infinity();
  // The result of compiling, if that is done.
  std::optional<CompileResult> compiled = std::nullopt;
};

struct Evaluated {
  int id = 0;
  // kTimeout: an `end` was reached before a verdict. kCancelled. Other errors are not the
  // candidate's fault.
  Result<Evaluation> evaluation;
};

// Settings of one search.
struct EvaluatorSettings {
  int compile_timeout_ms = 60'000;
  int run_timeout_ms = 20'000;     // of one run of one input set
  bool metrics = false;            // proven kernels are profiled, a new best in more detail
  const Cancel* cancel = nullptr;  // checked before each step; nullptr: never set
};

// Judges candidates for one region, on secret inputs. Not thread-safe.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  // Begins another search and drops trials of the previous one. REQUIRES: no request is running.
  virtual void Begin(const EvaluatorSettings& settings) = 0;
  // How many requests may run at once.
  virtual int slots() const = 0;
  // Starts a request. A proof continues from this evaluator's screening of the same trial.
  virtual void Submit(EvaluationRequest request) = 0;
  // Waits for one running request. REQUIRES: there is one.
  virtual Evaluated Wait() = 0;
  // Expected seconds of a proof, from the slowest run of a correct candidate; 0: unknown.
  virtual double proof_seconds() const { return 0; }
  // Of all candidates so far, and of creating the evaluator.
  virtual PhaseSeconds spent() const { return {}; }
  // Properties and measured rates of the device (CandidateRunner::Facts); an empty object: unknown.
  virtual Json facts() { return Json::object(); }
};

// Judges one candidate, without a time limit.
Result<Evaluation> ProveCandidate(Evaluator& evaluator, const Candidate& candidate,
                                  const EvaluatorSettings& settings = {});

// Makes the evaluator of a region on device `device_index` of its kind. `cancel`: may be nullptr.
// kUnsupported: the region cannot be judged. kNoMemory: not with the free memory. kTimeout: not
// within `seconds`. kCancelled. Other errors: what this machine lacks.
using OpenEvaluator = std::function<Result<std::unique_ptr<Evaluator>>(
    const OpSignature& region, int device_index, double seconds, const Cancel* cancel)>;

}  // namespace cudaforge
