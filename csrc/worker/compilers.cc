#include "worker/compilers.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <system_error>
#include <utility>

namespace cudaforge {
namespace {

constexpr size_t kMostJobs = 96;  // jobs kept, in any state
constexpr std::chrono::seconds kIdle{60};
constexpr std::chrono::milliseconds kLook{100};

}  // namespace

Compilers::Compilers(WorkerOptions options, int most)
    : options_(std::move(options)), most_(std::max(1, most)) {}

Compilers::~Compilers() {
  ending_.Set();
  {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

Compilers::JobPtr Compilers::Find(const Candidate& candidate, const std::string& arch) const {
  const auto found = std::find_if(jobs_.begin(), jobs_.end(), [&](const JobPtr& job) {
    return job->arch == arch && job->source.language == candidate.source.language &&
           job->source.code == candidate.source.code;
  });
  return found != jobs_.end() ? *found : nullptr;
}

Compilers::JobPtr Compilers::Add(const Candidate& candidate, const std::string& arch) {
  auto job = std::make_shared<Job>();
  job->arch = arch;
  job->source = candidate.source;
  jobs_.push_back(job);
  if (jobs_.size() > kMostJobs) {
    const auto old = std::find_if(jobs_.begin(), jobs_.end(),
                                  [](const JobPtr& one) { return one->waiters == 0; });
    if (old != jobs_.end()) jobs_.erase(old);
  }
  if (Status started = StartThreads(); !started.ok()) {
    job->result = std::move(started);
    job->state = Job::kDone;
  }
  changed_.notify_all();
  return job;
}

Status Compilers::StartThreads() {
  const auto waiting = std::count_if(jobs_.begin(), jobs_.end(),
                                     [](const JobPtr& job) { return job->state == Job::kWaits; });
  try {
    for (auto more = waiting - idle_; more > 0 && static_cast<int>(threads_.size()) < most_;
         --more) {
      threads_.emplace_back([this] { Work(); });
    }
  } catch (const std::system_error& error) {
    if (threads_.empty()) return Status::Unavailable(error.what());
  }
  return Status::Ok();
}

Compilers::JobPtr Compilers::NextToRun() const {
  for (const JobPtr& job : jobs_) {
    if (job->state == Job::kWaits) return job;
  }
  return nullptr;
}

void Compilers::Drop(const JobPtr& job) { std::erase(jobs_, job); }

void Compilers::Begin(const Candidate& candidate, const std::string& arch) {
  const std::lock_guard lock(mutex_);
  if (Find(candidate, arch) == nullptr) Add(candidate, arch);
}

Result<CompileResult> Compilers::Finish(const Candidate& candidate, const std::string& arch,
                                        int timeout_ms, const Cancel* cancel) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  std::unique_lock lock(mutex_);
  JobPtr job = Find(candidate, arch);
  if (job == nullptr) job = Add(candidate, arch);
  if (job->state == Job::kWaits) {  // before jobs without a waiting thread
    Drop(job);
    jobs_.push_front(job);
  }
  ++job->waiters;
  Result<CompileResult> result = CompileResult::Failure("the compiler did not finish within " +
                                                        std::to_string(timeout_ms) + " ms");
  while (job->state != Job::kDone && std::chrono::steady_clock::now() < end) {
    if (cancel != nullptr && cancel->IsSet()) {
      result = Status::Cancelled("cancelled");
      break;
    }
    changed_.wait_for(lock, kLook);
  }
  if (job->state == Job::kDone) result = job->result;  // other threads may wait for it
  if (--job->waiters == 0) Drop(job);
  return result;
}

void Compilers::Forget(const Candidate& candidate, const std::string& arch) {
  const std::lock_guard lock(mutex_);
  const JobPtr job = Find(candidate, arch);
  if (job != nullptr && job->waiters == 0) Drop(job);
}

void Compilers::Work() {
  // Made in this thread: the system kills a worker when the thread that started it ends.
  std::optional<WorkerClient> worker;
  std::string arch;
  std::unique_lock lock(mutex_);
  while (!ending_.IsSet()) {
    const JobPtr job = NextToRun();
    if (job == nullptr) {
      ++idle_;
      const bool waited_long = changed_.wait_for(lock, kIdle) == std::cv_status::timeout;
      --idle_;
      if (waited_long && worker.has_value()) {
        lock.unlock();
        worker.reset();
        lock.lock();
      }
      continue;
    }
    job->state = Job::kRuns;
    lock.unlock();
    if (!worker.has_value() || arch != job->arch) {
      WorkerOptions options = options_;
      options.compiles_for = arch = job->arch;
      options.cancel = &ending_;
      worker.emplace(std::move(options));
    }
    Candidate candidate;
    candidate.source = job->source;
    Result<CompileResult> result = worker->Compile(candidate);
    lock.lock();
    job->result = std::move(result);
    job->state = Job::kDone;
    changed_.notify_all();
  }
}

}  // namespace cudaforge
