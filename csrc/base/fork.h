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

// Forks and what must not be under way in other threads meanwhile, for each Owner by itself. A fork
// waits until no other thread is inside, and while that waits and is made, no other thread comes
// in; each no longer than it is told to. Nothing is locked meanwhile. Thread-safe.
template <typename Owner>
class ForkGate {
 public:
  using Duration = std::chrono::nanoseconds;

  // Inside from here to Leave, which the same thread calls; again while inside, too. Waits for
  // forks of other threads; after `most`, for which a handler amid a fork may have waited for this
  // thread, it is inside nevertheless, beside that fork: false. Whoever is inside must wait neither
  // for a thread that may fork or come in, nor for what HoldAcrossForks was given.
  static bool Enter(Duration most) {
    if (depth_++ > 0) return true;
    const Wait wait(most);
    for (;;) {
      ++inside_;
      if (forking_ > 0 || forks_ == 0) return true;
      if (wait.IsOver()) return false;
      --inside_;
      while (forks_ > 0 && !wait.IsOver()) Wait::Pause();
    }
  }
  // CheckError, and nothing is changed: the thread is not inside.
  static void Leave() {
    CF_CHECK(depth_ > 0) << "left by a thread that has not entered";
    if (--depth_ == 0) --inside_;
  }

  // Around a fork, which is not put off longer than `most`: false, another thread is inside yet.
  // Handlers of forks and of signals that run in between may fork and get inside, in this thread;
  // another one that they wait for must do neither.
  static bool BeforeFork(Duration most) {
    if (forking_++ > 0) return true;  // a handler, amid this thread's own fork, which has waited
    const Wait wait(most);
    ++forks_;
    while (inside_ > Own()) {
      if (wait.IsOver()) return false;
      Wait::Pause();
    }
    return true;
  }
  static void AfterForkInParent() {
    if (forking_ == 0) return;  // registered amid a fork, or the child of one amid this
    if (--forking_ == 0) --forks_;
  }
  // The child begins anew, with this thread alone; also where a handler has forked it amid another
  // fork, which is made in the child, too, if the handler returns there.
  static void AfterForkInChild() {
    inside_ = Own();
    forks_ = 0;
    forking_ = 0;
  }

  // Whether a fork of this thread is under way.
  static bool AmidFork() { return forking_ > 0; }

 private:
  // Looks again each millisecond: a child that inherits a condition variable may wait for ever for
  // the threads that wait for it in the parent.
  class Wait {
   public:
    explicit Wait(Duration most) : most_(most) {}
    bool IsOver() const { return std::chrono::steady_clock::now() - begun_ >= most_; }
    static void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

   private:
    const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
    const Duration most_;
  };

  static int Own() { return depth_ > 0 ? 1 : 0; }

  // Each is counted before the other is looked at: of a thread that comes in and one that forks,
  // one sees the other.
  inline constinit static std::atomic<int> inside_{0};    // threads
  inline constinit static std::atomic<int> forks_{0};     // that wait, or are made, by threads
  inline constinit static thread_local int depth_ = 0;    // how often this thread is inside
  inline constinit static thread_local int forking_ = 0;  // how many forks of it are under way
};

// While one lives, a fork in another thread waits: what its owner does is of a library, whose locks
// a child would find taken. As of ForkGate, and the thread that has one must not fork. CheckError:
// pthread_atfork has failed.
template <typename Owner>
class NoForkMeanwhile {
 public:
  NoForkMeanwhile() {
    CF_CHECK(kRegistered) << "pthread_atfork";
    Gate::Enter(Gate::Duration::max());
  }
  ~NoForkMeanwhile() { Gate::Leave(); }
  NoForkMeanwhile(const NoForkMeanwhile&) = delete;
  NoForkMeanwhile& operator=(const NoForkMeanwhile&) = delete;

 private:
  using Gate = ForkGate<Owner>;

  static bool Register() noexcept {
    return pthread_atfork([] { Gate::BeforeFork(Gate::Duration::max()); }, Gate::AfterForkInParent,
                          Gate::AfterForkInChild) == 0;
  }

  inline static const bool kRegistered = Register();  // when the library is loaded
};

}  // namespace cudaforge
