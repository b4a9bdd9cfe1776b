// Evaluator: compiles, verifies and times candidates, wherever the device is.
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

// To be raised with every change after which the verifier may refuse what it accepted, or after
// which kernels that generators made before should be made anew.
inline constexpr int kVerifierVersion = 12;

// What a kernel is wanted for.
struct Task {
  OpSignature region;
  DeviceArch arch;
};

// How closely a candidate is looked at.
enum class Depth {
  kScreen,  // right on the first input set; timed
  kProof,   // right on every input set; timed
};

// What running a candidate has shown.
struct Findings {
  Verdict verdict;
  std::optional<double> ns;  // timed on the first input set, where it was right there
  Json resources = Json::object();
  Json profile;  // null: not profiled
  Json derived;  // null without a time
};

// A kernel that was right on every input set.
struct ProvenKernel {
  Candidate candidate;
  std::string binary;
  double ns = 0;
  Json verification;  // {"report": RegionVerifier::Report, "cases": [names]}
};

struct Evaluation {
  Findings findings;
  std::optional<ProvenKernel> kernel;  // of a proof that accepted
  double seconds = 0;
  double device_seconds = 0;  // of them, spent running, timing and profiling
};

struct EvaluationRequest {
  int id = 0;  // of the trial
  Candidate candidate;
  Depth depth = Depth::kProof;
  // Of screenings: nanoseconds of the best so far. A candidate that takes twice as long is not
  // timed to the end, and one that is no faster is kTooSlow.
  std::optional<double> best_ns = std::nullopt;
  // A proof goes on only while it is expected to end before this (SteadySeconds).
  double end = std::numeric_limits<double>::infinity();
  // A screening begins none of its steps after these (SteadySeconds), but for its first: compiling.
  // The second holds once the first input set is passed.
  double screen_end = std::numeric_limits<double>::infinity();
  double screen_end_right = std::numeric_limits<double>::infinity();
  // What compiling it came to, where that was done already.
  std::optional<CompileResult> compiled = std::nullopt;
};

struct Evaluated {
  int id = 0;
  // kTimeout: an `end` came before a verdict. kCancelled. Other errors are not the
  // candidate's fault.
  Result<Evaluation> evaluation;
};

// What one search asks of an evaluator.
struct EvaluatorSettings {
  int compile_timeout_ms = 60'000;
  int run_timeout_ms = 20'000;     // of one run of one input set
  bool metrics = false;            // what is proven is profiled, a new best more closely
  const Cancel* cancel = nullptr;  // looked at before each step; nullptr: never set
};

// Of one region, whose inputs no author of a candidate can know. Not thread-safe: one forge uses it
// from one thread.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  // Another search begins: trials of the one before are forgotten. Nothing is under way.
  virtual void Begin(const EvaluatorSettings& settings) = 0;
  // How many requests may be under way at once.
  virtual int slots() const = 0;
  // Begins with a candidate. A proof of a trial that this evaluator screened goes on from there.
  virtual void Submit(EvaluationRequest request) = 0;
  // Waits for one of those under way. REQUIRES: there is one.
  virtual Evaluated Wait() = 0;
  // Seconds of a proof, by the slowest run of a right candidate so far; 0: unknown.
  virtual double proof_seconds() const { return 0; }
  // Of all candidates so far, and of the making of this.
  virtual PhaseSeconds spent() const { return {}; }
  // What the device is and measurably does (CandidateRunner::Facts); an empty object: unknown.
  virtual Json facts() { return Json::object(); }
};

// What becomes of one candidate, however long it takes.
Result<Evaluation> ProveCandidate(Evaluator& evaluator, const Candidate& candidate,
                                  const EvaluatorSettings& settings = {});

// Makes what candidates for a region are judged by, on device `device_index` of its kind.
// `cancel`: may be nullptr. kUnsupported: the region cannot be judged. kNoMemory: not with the
// memory that is free now. kTimeout: not within `seconds`. kCancelled. Other errors: what this
// machine lacks.
using OpenEvaluator = std::function<Result<std::unique_ptr<Evaluator>>(
    const OpSignature& region, int device_index, double seconds, const Cancel* cancel)>;

}  // namespace cudaforge
