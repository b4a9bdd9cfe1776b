#include "base/fork.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/cpp/forked.h"

namespace cudaforge {
namespace {

struct Counted {
  explicit Counted(const std::string& text) : text(text) { ++made; }
  ~Counted() { ++destroyed; }
  const std::string text;
  static inline std::atomic<int> made = 0, destroyed = 0;
};

TEST(OfProcess, AForkedChildHasItsOwn) {
  Counted::made = Counted::destroyed = 0;
  {
    OfProcess<Counted> counted;
    Counted* const first = &counted.Get("the parent's");
    EXPECT_EQ(&counted.Get("not made"), first);
    EXPECT_EQ(first->text, "the parent's");
    EXPECT_EQ(Counted::made, 1);
    EXPECT_EQ(InForkedChild([&] {
                Counted* const own = &counted.Get("the child's");
                const bool ok = own != first && own->text == "the child's" &&
                                &counted.Get("not made") == own && Counted::destroyed == 0;
                return ok ? 0 : 1;
              }),
              0);
    EXPECT_EQ(&counted.Get("not made"), first);
    EXPECT_EQ(Counted::destroyed, 0);
  }
  EXPECT_EQ(Counted::destroyed, 1);
}

TEST(OfProcess, AForkedChildLeavesTheParentsBehind) {
  auto counted = std::make_unique<OfProcess<Counted>>();
  counted->Get("the parent's");
  Counted::destroyed = 0;
  EXPECT_EQ(InForkedChild([&] {
              counted.reset();
              return Counted::destroyed.load();
            }),
            0);
}

TEST(OfProcess, ThreadsGetTheSameOne) {
  Counted::made = Counted::destroyed = 0;
  OfProcess<Counted> counted;
  std::array<Counted*, 8> seen{};
  std::vector<std::thread> threads;
  for (Counted*& one : seen) threads.emplace_back([&] { one = &counted.Get("a thread's"); });
  for (std::thread& thread : threads) thread.join();
  for (Counted* one : seen) EXPECT_EQ(one, seen[0]);
  EXPECT_EQ(Counted::made - Counted::destroyed, 1);
}

TEST(HoldAcrossForks, AChildFindsTheMutexFree) {
  static std::mutex mutex;
  struct Owner {};
  HoldAcrossForks<Owner>(&mutex);
  std::atomic<bool> ended = false;
  std::thread holder([&] {
    while (!ended) {
      const std::lock_guard lock(mutex);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (int child = 0; child < 20; ++child) {
    EXPECT_EQ(InForkedChild([] {
                const std::lock_guard lock(mutex);
                return 0;
              }),
              0);
  }
  ended = true;
  holder.join();
}

// One thread after the other is inside, so that there is always one, and each has another inside.
TEST(NoForkMeanwhile, AForkWaitsAndIsNotOvertaken) {
  struct Owner {};
  using NoFork = NoForkMeanwhile<Owner>;
  std::atomic<bool> ended = false;
  std::atomic<int> inside = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      while (!ended) {
        const NoFork outer;
        ++inside;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const NoFork inner;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        --inside;
      }
    });
  }
  for (int child = 0; child < 50; ++child) {
    EXPECT_EQ(InForkedChild([&] {
                if (inside != 0) return 1;
                { const NoFork own; }
                return InForkedChild([] {
                  const NoFork of_a_grandchild;
                  return 0;
                });
              }),
              0);
  }
  ended = true;
  for (std::thread& thread : threads) thread.join();
}

// Of one owner for each test: what one leaves behind is none of the others'.
template <typename Owner>
struct Gate : ForkGate<Owner> {
  static constexpr std::chrono::seconds kLong{60};
  static constexpr std::chrono::milliseconds kShort{50};

  // Whether a thread that is not this one gets inside without giving up.
  static bool IsOpenToOthers() {
    bool open = false;
    std::thread([&] {
      open = Gate::Enter(kShort);
      Gate::Leave();
    }).join();
    return open;
  }
};

// While it lives, a thread is inside.
template <typename Gate>
class OneInside {
 public:
  OneInside()
      : thread_([this] {
          Gate::Enter(Gate::kLong);
          entered_ = true;
          while (!ended_) std::this_thread::yield();
          Gate::Leave();
        }) {
    while (!entered_) std::this_thread::yield();
  }
  ~OneInside() {
    ended_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> entered_ = false, ended_ = false;
  std::thread thread_;
};

TEST(ForkGate, AHandlerAmidAForkForksAndGetsInsideAndOthersDoNot) {
  using Gate = Gate<struct HandlersOwner>;
  Gate::BeforeFork(Gate::kLong);
  EXPECT_TRUE(Gate::AmidFork());
  EXPECT_FALSE(Gate::IsOpenToOthers());
  Gate::Enter(Gate::kLong);
  Gate::BeforeFork(Gate::kLong);
  Gate::AfterForkInParent();
  EXPECT_FALSE(Gate::IsOpenToOthers());
  Gate::Leave();
  EXPECT_TRUE(Gate::AmidFork());
  Gate::AfterForkInParent();
  EXPECT_FALSE(Gate::AmidFork());
  EXPECT_TRUE(Gate::IsOpenToOthers());
}

TEST(ForkGate, WhatIsEnteredAmidAForkIsCountedAfterIt) {
  using Gate = Gate<struct EnteredOwner>;
  Gate::BeforeFork(Gate::kLong);
  Gate::Enter(Gate::kLong);
  Gate::AfterForkInParent();
  std::atomic<bool> waits = true, forked = false;
  std::thread forking([&] {
    Gate::BeforeFork(Gate::kLong);
    forked = true;
    EXPECT_FALSE(waits);
    Gate::AfterForkInParent();
  });
  std::this_thread::sleep_for(Gate::kShort);
  EXPECT_FALSE(forked);
  waits = false;
  Gate::Leave();
  forking.join();
}

TEST(ForkGate, WhoForksAndWhoGetsInsideWaitNoLongerThanTheyAreToldTo) {
  using Gate = Gate<struct LimitsOwner>;
  {
    const OneInside<Gate> inside;
    EXPECT_FALSE(Gate::BeforeFork(Gate::kShort));
    EXPECT_FALSE(Gate::IsOpenToOthers());  // which gets inside nevertheless, and out again
    Gate::AfterForkInParent();
    EXPECT_TRUE(Gate::IsOpenToOthers());
  }
  EXPECT_TRUE(Gate::BeforeFork(Gate::kShort));  // for nobody
  Gate::AfterForkInParent();
}

// The child of a handler amid a fork, too, which may do its work there.
TEST(ForkGate, AChildBeginsAnew) {
  using Gate = Gate<struct ChildsOwner>;
  const OneInside<Gate> inside;
  const auto is_new = [] {
    Gate::AfterForkInChild();
    if (Gate::AmidFork() || !Gate::IsOpenToOthers()) return 1;
    if (!Gate::BeforeFork(Gate::kShort)) return 2;  // the parent's thread is not inside here
    Gate::AfterForkInParent();
    return Gate::IsOpenToOthers() ? 0 : 3;
  };
  EXPECT_EQ(InForkedChild(is_new), 0);  // where nothing came before the fork
  Gate::BeforeFork(Gate::kShort);
  EXPECT_EQ(InForkedChild(is_new), 0);
  Gate::BeforeFork(Gate::kShort);
  EXPECT_EQ(InForkedChild([&] {
              const int result = is_new();
              Gate::AfterForkInChild();  // of the outer fork
              return Gate::IsOpenToOthers() ? result : 4;
            }),
            0);
  Gate::AfterForkInParent();
  Gate::AfterForkInParent();
}

TEST(ForkGate, WhatIsRegisteredAmidAForkDoesNothingAfterIt) {
  using Gate = Gate<struct RegisteredOwner>;
  Gate::AfterForkInParent();
  EXPECT_TRUE(Gate::IsOpenToOthers());
  Gate::BeforeFork(Gate::kLong);
  EXPECT_FALSE(Gate::IsOpenToOthers());
  Gate::AfterForkInParent();
}

TEST(ForkGate, NobodyLeavesWhoIsNotInside) {
  using Gate = Gate<struct LeavingOwner>;
  EXPECT_THROW(Gate::Leave(), CheckError);
  EXPECT_TRUE(Gate::BeforeFork(Gate::kShort));  // for nobody
  Gate::AfterForkInParent();
}

}  // namespace
}  // namespace cudaforge
