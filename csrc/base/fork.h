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

// While one lives, a fork in another thread waits, and while that waits and forks, no thread gets
// its first one. For each Owner by itself. They may be inside each other, and many threads may have
// one: what they do is of a library, whose locks a child would find taken. Each ends in the thread
// that made it. A thread that forks must not have one, and one that has one must wait neither for a
// thread that may fork or may want its first one, nor for what HoldAcrossForks was given.
template <typename Owner>
class NoForkMeanwhile {
 public:
  NoForkMeanwhile() {
    CF_CHECK(kRegistered) << "pthread_atfork";
    if (depth_++ > 0) return;
    mutex_.lock();
    WaitForZero(forks_);
    ++inside_;
    mutex_.unlock();
  }
  ~NoForkMeanwhile() {
    if (--depth_ > 0) return;
    const std::lock_guard lock(mutex_);
    if (--inside_ == 0) inside_.notify_all();
  }
  NoForkMeanwhile(const NoForkMeanwhile&) = delete;
  NoForkMeanwhile& operator=(const NoForkMeanwhile&) = delete;

 private:
  static void BeforeFork() {
    mutex_.lock();
    ++forks_;
    WaitForZero(inside_);
  }
  static void AfterForkInParent() {
    if (--forks_ == 0) forks_.notify_all();
    mutex_.unlock();
  }
  static void AfterForkInChild() {
    forks_ = 0;  // other threads of the parent may be waiting to fork
    mutex_.unlock();
  }
  // REQUIRES: mutex_ is held, as it is again afterwards, and not while it waits.
  static void WaitForZero(const std::atomic<int>& count) {
    while (const int now = count) {
      mutex_.unlock();
      count.wait(now);
      mutex_.lock();
    }
  }
  static bool Register() noexcept {
    return pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild) == 0;
  }

  // There from the start and for ever, and registered when the library is loaded: a child that was
  // forked while a thread makes them would wait for that thread.
  inline constinit static std::mutex mutex_;             // held while a fork is under way; guards:
  inline constinit static std::atomic<int> inside_ = 0;  // threads that have one
  inline constinit static std::atomic<int> forks_ = 0;   // that wait, or are under way
  inline constinit static thread_local int depth_ = 0;   // how many this thread has
  inline static const bool kRegistered = Register();
};

}  // namespace cudaforge
