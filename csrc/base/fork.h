// What threads share, and a forked child, which has none of its parent's threads but the one that
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
// then. Once for each Owner, else CheckError, as where pthread_atfork fails. A thread that forks
// must not hold the mutex; one that holds it must wait neither for a thread that may fork nor for
// another such mutex.
template <typename Owner>
void HoldAcrossForks(std::mutex* mutex) {
  static std::mutex* held = nullptr;
  CF_CHECK(held == nullptr) << "one mutex for each owner";
  held = mutex;
  const int error =
      pthread_atfork([] { held->lock(); }, [] { held->unlock(); }, [] { held->unlock(); });
  CF_CHECK(error == 0) << "pthread_atfork: " << error;
}

// While one lives, a fork in another thread waits: what its owner does is of a library, whose locks
// a child would find taken. A fork that waits is not overtaken: no other thread comes in. A thread
// may have several; it must not fork meanwhile, nor wait for a thread that may fork or for what
// HoldAcrossForks was given. CheckError: pthread_atfork has failed.
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
  // Looks again each millisecond: a child that inherits a condition variable may wait for ever for
  // the threads that wait for it in the parent.
  static void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
  static bool Register() noexcept {
    return pthread_atfork(
               BeforeFork, [] { --forks_; }, [] { forks_ = inside_ = 0; }) == 0;
  }

  // Each is counted before the other is looked at: of a thread that comes in and one that forks,
  // one sees the other.
  inline constinit static std::atomic<int> inside_{0};  // threads
  inline constinit static std::atomic<int> forks_{0};   // that wait, or are made
  inline constinit static thread_local int depth_ = 0;  // how many of them this thread has
  inline static const bool kRegistered = Register();    // when the library is loaded
};

}  // namespace cudaforge
