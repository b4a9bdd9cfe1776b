// What threads share, and a forked child, which has none of its parent's threads but the one that
// forked.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "base/check.h"

namespace cudaforge {

// One T of each process: a forked child gets one of its own, and the parent's is left behind in it,
// neither used nor destroyed. Thread-safe.
template <typename T>
class OfProcess {
 public:
  OfProcess() = default;
  ~OfProcess() {
    const Made* made = current_.load();
    if (made != nullptr && made->process == getpid()) delete made;
  }
  OfProcess(const OfProcess&) = delete;
  OfProcess& operator=(const OfProcess&) = delete;

  // Made of `args` at a process's first call; where two threads are the first, one T of theirs
  // is destroyed again. What T's constructor throws is thrown. Must not run while
  // this is destroyed.
  template <typename... Args>
  T& Get(const Args&... args) {
    Made* there = current_.load();
    if (there != nullptr && there->process == getpid()) return there->value;
    auto fresh = std::make_unique<Made>(args...);
    if (current_.compare_exchange_strong(there, fresh.get())) there = fresh.release();
    return there->value;
  }

 private:
  struct Made {
    template <typename... Args>
    explicit Made(const Args&... args) : value(args...) {}

    const pid_t process = getpid();
    T value;
  };

  std::atomic<Made*> current_{nullptr};
};

// Has a fork wait until `mutex`, which lives as long as the process, is free, as it is in the child
// then. Once for each Owner. A thread that forks must not hold the mutex, and one that holds it
// must wait neither for a thread that may fork nor for another such mutex.
template <typename Owner>
void HoldAcrossForks(std::mutex* mutex) {
  static std::mutex* held = nullptr;
  CF_CHECK(held == nullptr) << "one mutex for each owner";
  held = mutex;
  const int error =
      pthread_atfork([] { held->lock(); }, [] { held->unlock(); }, [] { held->unlock(); });
  CF_CHECK(error == 0) << "pthread_atfork: " << error;
}

}  // namespace cudaforge
