// WorkerClient: the parent's side of the worker process. Drives one worker at a time, and starts a
// new one after the last died, hung or reported a device error. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
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
#include "worker/launch.h"
#include "worker/timing_plan.h"

namespace cudaforge {

struct WorkerOptions {
  std::string executable;  // path of cudaforge-worker
  DeviceType device = DeviceType::kCpu;
  int device_index = 0;
  int compile_timeout_ms = 60'000;
  int run_timeout_ms = 20'000;  // of one run on one input set
  std::string cxx;              // host compiler for the cpu target; empty: the default
  std::vector<std::string> cuda_search_paths;  // for libnvrtc and the CUDA headers
  // "cuda:sm_90a": only compiles for that, without a device. Empty: does all.
  std::string compiles_for = {};
  // Checked while the worker works. Once it is set, the worker is killed and the call returns
  // kCancelled within a quarter of a second. nullptr: never. Must outlive the client.
  const Cancel* cancel = nullptr;
};

// Compiles and runs candidates. Errors are never a candidate's fault.
class CandidateRunner {
 public:
  virtual ~CandidateRunner() = default;

  // Compiles in the worker. A crash or hang of the compiler is a failed CompileResult with that
  // log. Retries once if the worker exits. kUnavailable: it exited twice, not because of the
  // source, or this machine cannot compile (CompileResult::fault).
  virtual Result<CompileResult> Compile(const Candidate& candidate) = 0;
  // Properties and measured rates of the device: see Target::Facts. kUnsupported: this runner has
  // none.
  virtual Result<Json> Facts();

  // Maps memory of the caller, on which candidates run, and returns an id. A second call for the
  // same memory maps it at another address, with another id. `shift`: see kMapShifts. Memory and
  // mapping stay until Unmap, and the kernel until Unload or the next Load: a restarted worker gets
  // both. kUnsupported (all calls below): this runner only compiles. kNoMemory: the worker cannot
  // map it. REQUIRES: the caller's work on the memory is done before a launch.
  virtual Result<int> Map(const SharedMemory& memory, bool writable, int64_t shift);
  // kInvalidArgument: no such id.
  virtual Status Unmap(int id);
  // Replaces the loaded kernel.
  virtual Result<LoadedKernel> Load(const std::string& binary, const Candidate& candidate,
                                    const OpSignature& signature);
  virtual Status Unload();
  // Runs the loaded kernel once. accepted: it returned; the values are not checked. Else crashed,
  // memory_fault, modified_input, timeout, launch_error or refused. kUnavailable: another process
  // killed it (SIGKILL), as the system does when memory runs out. To retry, refill the outputs.
  virtual Result<Verdict> Launch(const LaunchRequest& launch);
  // Returns the median nanoseconds of runs. Run i uses launches[i % launches.size()]. Before each
  // run the caches are evicted, then `warm_inputs` are read. Outputs are left as written. Operands
  // are prepared before, in writable mappings; `prepare_ns` (may be null) takes the time. On the
  // CPU the kernel runs in the measuring process: the time ranks, and proves nothing. kTimeout;
  // kMemoryFault: an invalid access; kUnavailable: any other end.
  virtual Result<double> Time(const std::vector<LaunchRequest>& launches, const TimingPlan& plan,
                              const std::vector<int>& warm_inputs, double* prepare_ns = nullptr);
  // Launch facts and hardware counters of one launch, up to `tier`: see Target::Profile.
  // Unavailable counters are a note in the result. Errors as Time.
  virtual Result<Json> Profile(const LaunchRequest& launch, int tier);

  // Replaces the options' limits from now on.
  virtual void Limit(int /*compile_ms*/, int /*run_ms*/, const Cancel* /*cancel*/) {}
};

class WorkerClient : public CandidateRunner {
 public:
  class Impl;  // worker_impl.h

  explicit WorkerClient(WorkerOptions options);
  ~WorkerClient() override;

  Result<CompileResult> Compile(const Candidate& candidate) override;
  Result<int> Map(const SharedMemory& memory, bool writable, int64_t shift) override;
  Status Unmap(int id) override;
  Result<LoadedKernel> Load(const std::string& binary, const Candidate& candidate,
                            const OpSignature& signature) override;
  Status Unload() override;
  Result<Verdict> Launch(const LaunchRequest& launch) override;
  Result<double> Time(const std::vector<LaunchRequest>& launches, const TimingPlan& plan,
                      const std::vector<int>& warm_inputs, double* prepare_ns = nullptr) override;
  Result<Json> Profile(const LaunchRequest& launch, int tier) override;
  // Requested from the first worker and kept.
  Result<Json> Facts() override;
  void Limit(int compile_ms, int run_ms, const Cancel* cancel) override;
  // The number of workers started so far.
  int started() const;
  // Starts the worker if there is none. Every request does that too. kNoMemory: too little memory;
  // else kUnavailable.
  Status Start();

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace cudaforge
