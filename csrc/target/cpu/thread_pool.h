// A small pool of threads with the shape of at::parallel_for, for processes that have no ATen: the
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
  // `threads` in all, the caller's included; at least 1.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Splits [0, n) into at most threads() equal parts of at least `grain` each and runs them, one of
  // them on the caller's thread; returns when all are done. Thread-safe: concurrent calls take
  // turns; a call from inside a body runs there and then. REQUIRES: body does not throw.
  void Run(int64_t n, int64_t grain, RangeFn body, void* context);

  // The process's pool; a forked child, which has no thread of its parent's, gets one of its own.
  // The first call fixes their size: `threads`, or when 0 what OMP_NUM_THREADS says, which ATen
  // obeys, else one per physical core. Never destroyed, as a library's destructor is no place to
  // join threads.
  static ThreadPool& Global(int threads = 0);
  // Its size, fixed as by Global. Starts no thread.
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

  std::mutex turn_;  // held by the caller whose job is running
  Job job_;          // written before generation_ moves on, read after
  std::atomic<uint32_t> generation_{0};
  std::atomic<int> pending_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

// ThreadPool::Global().Run as a plain function, for LaunchContext.
void PoolParallelFor(int64_t n, int64_t grain, RangeFn body, void* context);

}  // namespace cudaforge
