// Tools for state that threads share when one of them forks. A child has only the thread that
// forked.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "base/check.h"

namespace cudaforge {

// One T per process. A forked child makes its own; the parent's T stays in its memory, neither used
// nor destroyed. Thread-safe.
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

  // Returns this process's T, made from `args` at the first call. If two threads are first, one of
  // their objects is destroyed. Throws what T's constructor throws. Must not run during the
  // destructor.
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

// Makes fork wait until `mutex` is free, so that it is free in the child. `mutex` lives as long as
// the process. At most once for each Owner. CheckError on a second call, or if pthread_atfork
// fails. A thread that holds the mutex must not fork. It may not wait for a thread that may fork,
// or for another of these mutexes.
template <typename Owner>
void HoldAcrossForks(std::mutex* mutex) {
  static std::mutex* held = nullptr;
  CF_CHECK(held == nullptr) << "one mutex for each owner";
  held = mutex;
  const int error =
      pthread_atfork([] { held->lock(); }, [] { held->unlock(); }, [] { held->unlock(); });
  CF_CHECK(error == 0) << "pthread_atfork: " << error;
}

// While an object lives, forks in other threads wait. Guards library calls, whose locks a child
// would find taken. A waiting fork goes first: new objects wait for it. Objects can be nested in a
// thread. The thread must not fork, or wait for one that may fork or for a mutex of
// HoldAcrossForks. CheckError: pthread_atfork failed.
template <typename Owner>
class NoForkMeanwhile {
 public:
  NoForkMeanwhile() {
    CF_CHECK(kRegistered) << "pthread_atfork";
    if (depth_++ > 0) return;
    for (;;) {
      ++inside_;
      if (forks_ == 0) return;
      --inside_;
      while (forks_ > 0) Pause();
    }
  }
  ~NoForkMeanwhile() {
    if (--depth_ == 0) --inside_;
  }
  NoForkMeanwhile(const NoForkMeanwhile&) = delete;
  NoForkMeanwhile& operator=(const NoForkMeanwhile&) = delete;

 private:
  static void BeforeFork() {
    ++forks_;
    while (inside_ > 0) Pause();
  }
  // Polls every millisecond. A condition variable is unsafe here: a child that inherits its waiters
  // may wait for ever.
  static void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
  static bool Register() noexcept {
    return pthread_atfork(
               BeforeFork, [] { --forks_; }, [] { forks_ = inside_ = 0; }) == 0;
  }

  // Each side counts itself before it reads the other counter. So of an entering thread and a
  // forking thread, at least one sees the other.
  inline constinit static std::atomic<int> inside_{0};  // threads
  inline constinit static std::atomic<int> forks_{0};   // waiting or in progress
  inline constinit static thread_local int depth_ = 0;  // how many objects this thread has
  inline static const bool kRegistered = Register();    // runs when the library is loaded
};

}  // namespace cudaforge
