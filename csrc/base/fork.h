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

// Forks and what must not be under way in other threads meanwhile, for each Owner by itself. A fork
// waits until no other thread is inside, and while that waits and is made, no thread comes in.
// Thread-safe.
template <typename Owner>
class ForkGate {
 public:
  // Inside from here to Leave, which the same thread calls; again while inside, too. Whoever is
  // inside must wait neither for a thread that may fork or come in, nor for what HoldAcrossForks
  // was given.
  static void Enter() {
    if (depth_++ > 0) return;
    if (forking_ > 0) {  // a handler, amid this thread's own fork
      ++inside_;
      return;
    }
    mutex_.lock();
    while (forks_ > 0) Pause();
    ++inside_;
    mutex_.unlock();
  }
  static void Leave() {
    if (--depth_ > 0) return;
    if (forking_ > 0) {
      --inside_;
      return;
    }
    const std::lock_guard lock(mutex_);
    --inside_;
  }

  // Around a fork; after `most` the fork does not wait any more. Handlers of forks and of signals
  // that run in between may fork and get inside.
  static void BeforeFork(std::chrono::nanoseconds most) {
    if (forking_++ > 0) return;  // a handler, amid this thread's own fork, which has waited
    const auto begun = std::chrono::steady_clock::now();
    mutex_.lock();
    ++forks_;
    while (inside_ > Own() && std::chrono::steady_clock::now() - begun < most) Pause();
  }
  static void AfterForkInParent() {
    if (forking_ == 0) return;  // registered amid a fork
    if (--forking_ > 0) return;
    --forks_;
    mutex_.unlock();
  }
  static void AfterForkInChild() {  // which has no thread but this one
    if (forking_ == 0) return;
    inside_ = Own();
    forks_ = --forking_ > 0 ? 1 : 0;
    if (forks_ == 0) mutex_.unlock();
  }

 private:
  static int Own() { return depth_ > 0 ? 1 : 0; }
  // REQUIRES: mutex_ is held, as it is again afterwards.
  static void Pause() {
    mutex_.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    mutex_.lock();
  }

  // There from the start and for ever: a child that was forked while a thread makes them would wait
  // for that thread.
  inline constinit static std::mutex mutex_;              // held while a fork is made; guards:
  inline constinit static int inside_ = 0;                // threads
  inline constinit static int forks_ = 0;                 // that wait, or are made
  inline constinit static thread_local int depth_ = 0;    // how often this thread is inside
  inline constinit static thread_local int forking_ = 0;  // how many forks of it are under way
};

// While one lives, a fork in another thread waits: what its owner does is of a library, whose locks
// a child would find taken. As of ForkGate, and the thread that has one must not fork.
template <typename Owner>
class NoForkMeanwhile {
 public:
  NoForkMeanwhile() {
    CF_CHECK(kRegistered) << "pthread_atfork";
    Gate::Enter();
  }
  ~NoForkMeanwhile() { Gate::Leave(); }
  NoForkMeanwhile(const NoForkMeanwhile&) = delete;
  NoForkMeanwhile& operator=(const NoForkMeanwhile&) = delete;

 private:
  using Gate = ForkGate<Owner>;

  static bool Register() noexcept {
    return pthread_atfork([] { Gate::BeforeFork(std::chrono::nanoseconds::max()); },
                          Gate::AfterForkInParent, Gate::AfterForkInChild) == 0;
  }

  inline static const bool kRegistered = Register();  // when the library is loaded
};

}  // namespace cudaforge
