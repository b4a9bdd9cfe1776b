// Compilers: the processes of a program that compile candidates side by side, and ahead of the time
// when they are needed, for all of its forges.
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

// Thread-safe. A process is started when there is work for it, and ends when there was none for a
// minute.
class Compilers {
 public:
  // `options`: compiles_for is overwritten for each job. `most`: processes at once, at least 1.
  Compilers(WorkerOptions options, int most);
  // Ends what is under way.
  ~Compilers();
  Compilers(const Compilers&) = delete;
  Compilers& operator=(const Compilers&) = delete;

  int most() const { return most_; }

  // Begins to compile for `arch` ("cuda:sm_90a"), unless that was begun. Results that nobody asks
  // for are forgotten after some dozens of others.
  void Begin(const Candidate& candidate, const std::string& arch);
  // Waits for the result and hands it out once: a second Finish compiles again. What was not begun
  // is begun now. As CandidateRunner::Compile; kCancelled soon after `cancel` (nullptr: never) is
  // set.
  Result<CompileResult> Finish(const Candidate& candidate, const std::string& arch, int timeout_ms,
                               const Cancel* cancel);
  // Drops what was begun, unless somebody waits for it.
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

  // REQUIRES of all: mutex_ is held.
  JobPtr Find(const Candidate& candidate, const std::string& arch) const;
  JobPtr Add(const Candidate& candidate, const std::string& arch);
  JobPtr NextToRun() const;
  void Drop(const JobPtr& job);
  Status StartThreads();  // as many as there is work for

  void Work();  // of a thread, which has one process

  const WorkerOptions options_;
  const int most_;
  Cancel ending_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<JobPtr> jobs_;  // oldest first, but for those that are waited for
  std::vector<std::thread> threads_;
  int idle_ = 0;  // threads
};

}  // namespace cudaforge
