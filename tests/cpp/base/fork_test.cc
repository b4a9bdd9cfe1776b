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

TEST(OfProcess, ForkedChildHasItsOwn) {
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

TEST(OfProcess, ForkedChildDoesNotDestroyTheParents) {
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

TEST(HoldAcrossForks, ForkedChildFindsTheMutexFree) {
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

// Threads take turns, with overlap, so that one is always inside; each also nests.
TEST(NoForkMeanwhile, ForkWaitsWithPriority) {
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

}  // namespace
}  // namespace cudaforge
