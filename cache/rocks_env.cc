#include "cache/rocks_env.h"

#include <rocksdb/env.h>
#include <rocksdb/threadpool.h>

#include <algorithm>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>

#include "base/fork.h"

namespace cudaforge {
namespace {

class Environment final : public rocksdb::EnvWrapper {
 public:
  Environment() : EnvWrapper(rocksdb::Env::Default()) {}
  ~Environment() override { pool_->JoinAllThreads(); }
  const char* Name() const override { return "cudaforge"; }

  void Schedule(void (*function)(void*), void* arg, Priority priority, void* tag,
                void (*unscheduled)(void*)) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back({function, arg, priority, tag, unscheduled});
    }
    pool_->SubmitJob([this] { RunNext(); });
  }

  int UnSchedule(void* tag, Priority priority) override {
    std::list<Job> removed;
    {
      const std::lock_guard lock(mutex_);
      for (auto job = waiting_.begin(); job != waiting_.end();) {
        const auto next = std::next(job);
        if (job->tag == tag && job->priority == priority) {
          removed.splice(removed.end(), waiting_, job);
        }
        job = next;
      }
    }
    for (const Job& job : removed) {
      if (job.unscheduled != nullptr) job.unscheduled(job.arg);
    }
    return static_cast<int>(removed.size());
  }

  unsigned int GetThreadPoolQueueLen(Priority priority) const override {
    const std::lock_guard lock(mutex_);
    return static_cast<unsigned int>(
        std::count_if(waiting_.begin(), waiting_.end(),
                      [=](const Job& job) { return job.priority == priority; }));
  }

  // The pool has its threads, whatever is asked for.
  void SetBackgroundThreads(int /*number*/, Priority /*priority*/) override {}
  int GetBackgroundThreads(Priority /*priority*/) override { return kThreads; }
  void IncBackgroundThreadsIfNeeded(int /*number*/, Priority /*priority*/) override {}
  int ReserveThreads(int /*number*/, Priority /*priority*/) override { return 0; }
  int ReleaseThreads(int /*number*/, Priority /*priority*/) override { return 0; }

 private:
  static constexpr int kThreads = 2;

  struct Job {
    void (*function)(void*);
    void* arg;
    Priority priority;
    void* tag;
    void (*unscheduled)(void*);
  };

  // Of the jobs that wait, the first one of the highest priority.
  void RunNext() {
    std::list<Job> next;
    {
      const std::lock_guard lock(mutex_);
      const auto first = std::max_element(
          waiting_.begin(), waiting_.end(),
          [](const Job& one, const Job& other) { return one.priority < other.priority; });
      if (first == waiting_.end()) return;  // it was unscheduled
      next.splice(next.end(), waiting_, first);
    }
    next.front().function(next.front().arg);
  }

  mutable std::mutex mutex_;
  std::list<Job> waiting_;
  const std::unique_ptr<rocksdb::ThreadPool> pool_{rocksdb::NewThreadPool(kThreads)};
};

}  // namespace

rocksdb::Env* RocksEnv() {
  static auto* const env = new OfProcess<Environment>;
  return &env->Get();
}

}  // namespace cudaforge
