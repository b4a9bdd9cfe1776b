// WorkerClient: the parent's side of the worker process. One client drives one worker at a time and
// starts a fresh one whenever the last died, hung or reported a device error. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/json.h"
#include "base/status.h"
#include "base/subprocess.h"
#include "kernel/candidate.h"
#include "kernel/verdict.h"
#include "signature/op_signature.h"
#include "target/target.h"
#include "worker/input_set.h"
#include "worker/run_plan.h"
#include "worker/timing_plan.h"

namespace cudaforge {

struct WorkerOptions {
  std::string executable;  // path of cudaforge-worker
  DeviceType device = DeviceType::kCpu;
  int device_index = 0;
  int compile_timeout_ms = 60'000;
  int run_timeout_ms = 20'000;  // one run of one input set
  std::string cxx;              // host compiler for the cpu target; empty: the default
  std::vector<std::string> cuda_search_paths;  // may hold libnvrtc and the CUDA headers
  // Looked at while the worker works: once it is set the worker is killed, and the call is
  // kCancelled within a quarter of a second. nullptr: never. Must outlive the client.
  const Cancel* cancel = nullptr;
};

struct RunOutput {
  Verdict verdict;                   // accepted: it ran, guards and inputs are intact
  std::vector<std::string> outputs;  // bytes of each output, when it ran
};

// What the forge asks of whoever runs candidates. An error is never a candidate's fault.
class CandidateRunner {
 public:
  virtual ~CandidateRunner() = default;

  // Compiles in the worker. A crash or hang of the compiler is a failed CompileResult with that
  // log; a worker that ended is tried again once. kUnavailable: it ended twice, and not by the
  // source's doing, or this machine lacks what compiling needs (CompileResult::fault).
  virtual Result<CompileResult> Compile(const Candidate& candidate) = 0;
  // Loads `binary` and runs it on `inputs` as `plan` says: each buffer between guard bytes, outputs
  // and scratch poisoned, inputs compared afterwards. Tried again once where the worker was killed
  // (SIGKILL).
  virtual Result<RunOutput> Run(const std::string& binary, const Candidate& candidate,
                                const OpSignature& signature, const InputSet& inputs,
                                const RunPlan& plan) = 0;
  // Median device nanoseconds of cold runs on those inputs; a rank for the search, not evidence.
  virtual Result<double> Time(const std::string& binary, const Candidate& candidate,
                              const OpSignature& signature, const InputSet& inputs,
                              const TimingPlan& plan) = 0;
  // Launch facts and hardware counters of one call on those inputs, up to `tier`: see
  // Target::Profile. For candidates that Run has accepted. Counters that are not allowed or not
  // there are a note in the result. kUnsupported: this runner profiles nothing.
  virtual Result<Json> Profile(const std::string& binary, const Candidate& candidate,
                               const OpSignature& signature, const InputSet& inputs, int tier);
  // What the device is and measurably does: see Target::Facts. kUnsupported: this runner does not
  // know.
  virtual Result<Json> Facts();
  // In the place of the options' from now on.
  virtual void Limit(int /*compile_ms*/, int /*run_ms*/, const Cancel* /*cancel*/) {}
};

class WorkerClient : public CandidateRunner {
 public:
  explicit WorkerClient(WorkerOptions options);
  ~WorkerClient() override;

  Result<CompileResult> Compile(const Candidate& candidate) override;
  Result<RunOutput> Run(const std::string& binary, const Candidate& candidate,
                        const OpSignature& signature, const InputSet& inputs,
                        const RunPlan& plan) override;
  Result<double> Time(const std::string& binary, const Candidate& candidate,
                      const OpSignature& signature, const InputSet& inputs,
                      const TimingPlan& plan) override;
  Result<Json> Profile(const std::string& binary, const Candidate& candidate,
                       const OpSignature& signature, const InputSet& inputs, int tier) override;
  // Asked of the first worker and kept for the ones after it.
  Result<Json> Facts() override;
  void Limit(int compile_ms, int run_ms, const Cancel* cancel) override;
  // Workers started so far, and how the last one ended.
  int started() const;
  ProcessEnd last_end() const;

 private:
  Result<RunOutput> RunOnce(const std::string& binary, const Candidate& candidate,
                            const OpSignature& signature, const InputSet& inputs,
                            const RunPlan& plan);
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cudaforge
