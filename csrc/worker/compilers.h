// Compilers: a program's processes that compile candidates in parallel and in advance, for all its
// forges.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "kernel/candidate.h"
#include "target/target.h"
#include "worker/worker_client.h"

namespace cudaforge {

// Thread-safe. Processes start on demand, and end after a minute without work.
class Compilers {
 public:
  // `options`: compiles_for is set for each job. `most`: processes at once, at least 1.
  Compilers(WorkerOptions options, int most);
  // Stops running compilations.
  ~Compilers();
  Compilers(const Compilers&) = delete;
  Compilers& operator=(const Compilers&) = delete;

  int most() const { return most_; }

  // Starts to compile for `arch` ("cuda:sm_90a"), unless that was started. Keeps only the latest
  // few dozen unused results.
  void Begin(const Candidate& candidate, const std::string& arch);
  // Waits for the result and returns it once: a second Finish recompiles. Starts the compilation
  // if Begin was not called. Errors: as CandidateRunner::Compile; kCancelled soon after `cancel`
  // (nullptr: never) is set.
  Result<CompileResult> Finish(const Candidate& candidate, const std::string& arch, int timeout_ms,
                               const Cancel* cancel);
  // Drops a compilation, unless a thread waits for it.
  void Forget(const Candidate& candidate, const std::string& arch);

 private:
  struct Job {
    std::string arch;
    KernelSource source;
    enum { kWaits, kRuns, kDone } state = kWaits;
    int waiters = 0;  // in Finish
    Result<CompileResult> result = CompileResult();
  };
  using JobPtr = std::shared_ptr<Job>;

  // All of these REQUIRE: mutex_ is held.
  JobPtr Find(const Candidate& candidate, const std::string& arch) const;
  JobPtr Add(const Candidate& candidate, const std::string& arch);
  JobPtr NextToRun() const;
  void Drop(const JobPtr& job);
  Status StartThreads();  // as many as there are jobs for

  void Work();  // the body of a thread, which has one process

  const WorkerOptions options_;
  const int most_;
  Cancel ending_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<JobPtr> jobs_;  // oldest first, except those that a thread waits for
  std::vector<std::thread> threads_;
  int idle_ = 0;  // threads
};

}  // namespace cudaforge
