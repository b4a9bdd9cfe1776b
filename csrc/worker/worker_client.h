// WorkerClient: the parent's side of the worker process. One client drives one worker at a time and
// starts a fresh one whenever the last died, hung or reported a device error. Not thread-safe.
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
  int run_timeout_ms = 20'000;  // one run of one input set
  std::string cxx;              // host compiler for the cpu target; empty: the default
  std::vector<std::string> cuda_search_paths;  // may hold libnvrtc and the CUDA headers
  // "cuda:sm_90a": it compiles for that and does nothing else, without a device. Empty: it does
  // all.
  std::string compiles_for = {};
  // Looked at while the worker works: once it is set the worker is killed, and the call is
  // kCancelled within a quarter of a second. nullptr: never. Must outlive the client.
  const Cancel* cancel = nullptr;
};

// Compiles and runs candidates. An error is never a candidate's fault.
class CandidateRunner {
 public:
  virtual ~CandidateRunner() = default;

  // Compiles in the worker. A crash or hang of the compiler is a failed CompileResult with that
  // log; a worker that ended is tried again once. kUnavailable: it ended twice, and not by the
  // source's doing, or this machine lacks what compiling needs (CompileResult::fault).
  virtual Result<CompileResult> Compile(const Candidate& candidate) = 0;
  // What the device is and measurably does: see Target::Facts. kUnsupported: this runner does not
  // know.
  virtual Result<Json> Facts();

  // Candidates run on memory that the caller owns. Memory stays mapped in the worker until Unmap,
  // and the kernel stays loaded until Unload or the next Load: a worker that is started anew gets
  // both again. kUnsupported: this runner only compiles.
  //
  // Maps memory in the worker and returns the mapping's id. A second call for the same memory maps
  // it at another address, with an id of its own. `shift`: see kMapShifts (target/shared_memory.h).
  // The memory stays alive until Unmap. REQUIRES: the caller's own work on the memory is done
  // before a launch. kNoMemory: the worker cannot map it.
  virtual Result<int> Map(const SharedMemory& memory, bool writable, int64_t shift);
  // kInvalidArgument: no such id.
  virtual Status Unmap(int id);
  // In the place of the kernel that was loaded.
  virtual Result<LoadedKernel> Load(const std::string& binary, const Candidate& candidate,
                                    const OpSignature& signature);
  virtual Status Unload();
  // One run of the loaded kernel. accepted: it ran and returned, which says nothing of the values.
  // Else crashed, memory_fault, modified_input, timeout, launch_error or refused.
  // kUnavailable: the process was killed from outside (SIGKILL), as the system does when memory
  // runs out: fill the outputs anew and launch again.
  virtual Result<Verdict> Launch(const LaunchRequest& launch);
  // The median nanoseconds of runs. Run i uses launches[i % launches.size()]. Before each run the
  // caches are evicted, then `warm_inputs` are read into them. Outputs are what the runs leave. On
  // the CPU the kernel runs in the process that measures: the time ranks, and proves nothing.
  // kTimeout; kMemoryFault: it read or wrote where it may not; kUnavailable for any other end.
  virtual Result<double> Time(const std::vector<LaunchRequest>& launches, const TimingPlan& plan,
                              const std::vector<int>& warm_inputs);
  // Launch facts and hardware counters of one launch, up to `tier`: see Target::Profile. Counters
  // that are not allowed or not there are a note in the result. Errors as Time.
  virtual Result<Json> Profile(const LaunchRequest& launch, int tier);

  // In the place of the options' from now on.
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
                      const std::vector<int>& warm_inputs) override;
  Result<Json> Profile(const LaunchRequest& launch, int tier) override;
  // Asked of the first worker and kept for the ones after it.
  Result<Json> Facts() override;
  void Limit(int compile_ms, int run_ms, const Cancel* cancel) override;
  // Workers started so far.
  int started() const;
  // Starts the worker where there is none, as every request does. kNoMemory: there is too little
  // for it; else kUnavailable.
  Status Start();

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace cudaforge
