// A small thread pool with the interface of at::parallel_for, for processes without ATen: the
// worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "target/target.h"

namespace cudaforge {

class ThreadPool {
 public:
  // `threads` including the caller's; at least 1.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Splits [0, n) into at most threads() equal parts of at least `grain`, and runs them, one on the
  // caller's thread. Returns when all are done. Thread-safe: concurrent calls run in turn, and a
  // nested call runs inline. REQUIRES: body does not throw.
  void Run(int64_t n, int64_t grain, RangeFn body, void* context);

  // The process's pool. A forked child makes its own, because it lacks its parent's threads. The
  // first call fixes the size: `threads`, or if 0 OMP_NUM_THREADS (as in ATen), else one per
  // physical core. Never destroyed: joining threads in a library's destructor is unsafe.
  static ThreadPool& Global(int threads = 0);
  // Its size, fixed as in Global. Starts no thread.
  static int GlobalThreads(int threads = 0);

 private:
  struct Job {
    int64_t n = 0;
    int64_t chunk = 0;
    RangeFn body = nullptr;
    void* context = nullptr;
  };

  void Work(int index);
  void RunPart(int index) const;

  std::mutex turn_;  // held by the caller whose job runs
  Job job_;          // written before generation_ changes, read after
  std::atomic<uint32_t> generation_{0};
  std::atomic<int> pending_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

// ThreadPool::Global().Run as a function, for LaunchContext.
void PoolParallelFor(int64_t n, int64_t grain, RangeFn body, void* context);

}  // namespace cudaforge
