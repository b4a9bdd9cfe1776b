#include "target/cpu/thread_pool.h"

#include <algorithm>
#include <chrono>

#include "base/config.h"
#include "base/fork.h"
#include "target/cpu/cpu_info.h"

namespace cudaforge {
namespace {

thread_local bool t_inside = false;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Threads spin this long before they sleep, so that consecutive launches need no wake-up, as in
// OpenMP.
constexpr auto kSpin = std::chrono::microseconds(50);

constexpr int kMostThreads = 1024;

int DefaultThreads() {
  const int asked = GlobalConfig().threads;
  return asked >= 1 && asked <= kMostThreads ? asked : PhysicalCores();
}

// Spins, then sleeps, until `value` is no longer `old`.
template <typename T>
void WaitWhileEqual(const std::atomic<T>& value, T old) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  while (value.load(std::memory_order_acquire) == old) {
    Pause();
    if (std::chrono::steady_clock::now() > deadline) {
      value.wait(old, std::memory_order_acquire);
      return;
    }
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { Work(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunPart(int index) const {
  const int64_t begin = index * job_.chunk;
  const int64_t end = std::min(job_.n, begin + job_.chunk);
  if (begin < end) job_.body(job_.context, begin, end);
}

void ThreadPool::Work(int index) {
  t_inside = true;
  uint32_t seen = 0;
  while (true) {
    WaitWhileEqual(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    RunPart(index);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

void ThreadPool::Run(int64_t n, int64_t grain, RangeFn body, void* context) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (n <= grain || workers_.empty() || t_inside) return body(context, 0, n);
  const std::lock_guard<std::mutex> lock(turn_);
  const int64_t parts = std::min<int64_t>(threads(), (n - 1) / grain + 1);
  job_ = {n, (n - 1) / parts + 1, body, context};
  pending_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  t_inside = true;
  RunPart(0);
  t_inside = false;
  for (int left = pending_.load(); left != 0; left = pending_.load())
    WaitWhileEqual(pending_, left);
}

int ThreadPool::GlobalThreads(int threads) {
  static const int size = threads > 0 ? threads : DefaultThreads();
  return size;
}

ThreadPool& ThreadPool::Global(int threads) {
  static auto* const pool = new OfProcess<ThreadPool>;
  return pool->Get(GlobalThreads(threads));
}

void PoolParallelFor(int64_t n, int64_t grain, RangeFn body, void* context) {
  ThreadPool::Global().Run(n, grain, body, context);
}

}  // namespace cudaforge
