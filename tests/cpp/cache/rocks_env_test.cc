#include "cache/rocks_env.h"

#include <gtest/gtest.h>
#include <rocksdb/env.h>

#include <atomic>
#include <functional>
#include <latch>
#include <semaphore>
#include <string>
#include <thread>

#include "tests/cpp/forked.h"

namespace cudaforge {
namespace {

using Priority = rocksdb::Env::Priority;

class RocksEnvironment : public testing::Test {
 protected:
  static constexpr int kThreads = 2;

  struct Job {
    std::function<void()> run;
    std::function<void()> unscheduled = [] {};
    std::atomic<int>* scheduled = nullptr;
  };

  void TearDown() override {
    Release(kThreads);
    WaitForAll();
  }

  void Schedule(Job* job, Priority priority, void* tag = nullptr) {
    ++scheduled_;
    job->scheduled = &scheduled_;
    const auto run = [](void* given) {
      auto* const job = static_cast<Job*>(given);
      job->run();
      --*job->scheduled;
    };
    const auto unschedule = [](void* given) {
      auto* const job = static_cast<Job*>(given);
      job->unscheduled();
      --*job->scheduled;
    };
    RocksEnv()->Schedule(run, job, priority, tag, unschedule);
  }

  // Keeps all threads busy.
  void Occupy() {
    for (int i = 0; i < kThreads; ++i) Schedule(&occupation_, Priority::HIGH);
    occupied_.wait();
  }
  void Release(int threads) { released_.release(threads); }
  void WaitForAll() const {
    while (scheduled_ > 0) std::this_thread::yield();
  }

 private:
  std::atomic<int> scheduled_ = 0;  // and not at their end
  std::latch occupied_{kThreads};
  std::counting_semaphore<> released_{0};
  Job occupation_{[this] {
    occupied_.count_down();
    released_.acquire();
  }};
};

TEST_F(RocksEnvironment, RunsTheHighestPriorityFirst) {
  std::string order;
  Job low{[&] { order += 'l'; }}, bottom{[&] { order += 'b'; }}, high{[&] { order += 'h'; }};
  std::string begun;
  std::latch ended{1};
  Job last{[&] {
    begun = order;
    ended.count_down();
  }};
  Occupy();
  Schedule(&low, Priority::LOW);
  Schedule(&last, Priority::BOTTOM);
  Schedule(&bottom, Priority::BOTTOM);
  Schedule(&high, Priority::HIGH);
  EXPECT_EQ(RocksEnv()->GetThreadPoolQueueLen(Priority::LOW), 1u);
  EXPECT_EQ(RocksEnv()->GetThreadPoolQueueLen(Priority::BOTTOM), 2u);
  Release(1);  // the other thread stays busy: one job after the other
  ended.wait();
  EXPECT_EQ(begun, "hl");
  Release(1);
  WaitForAll();
  EXPECT_EQ(order, "hlb");
}

TEST_F(RocksEnvironment, WhatIsUnscheduledDoesNotRun) {
  bool ran = false, kept_ran = false;
  int unscheduled = 0, mine = 0, others = 0;
  Job removed{[&] { ran = true; }, [&] { ++unscheduled; }};
  Job kept{[&] { kept_ran = true; }};
  Occupy();
  Schedule(&removed, Priority::LOW, &mine);
  Schedule(&removed, Priority::LOW, &mine);
  Schedule(&kept, Priority::BOTTOM, &mine);
  EXPECT_EQ(RocksEnv()->UnSchedule(&others, Priority::LOW), 0);
  EXPECT_EQ(RocksEnv()->UnSchedule(&mine, Priority::LOW), 2);
  EXPECT_EQ(unscheduled, 2);
  EXPECT_EQ(RocksEnv()->GetThreadPoolQueueLen(Priority::LOW), 0u);
  Release(kThreads);
  WaitForAll();
  EXPECT_TRUE(kept_ran);
  EXPECT_FALSE(ran);
}

TEST_F(RocksEnvironment, AForkedChildHasThreadsOfItsOwn) {
  rocksdb::Env* const parents = RocksEnv();
  const int status = InForkedChild([&] {
    Job job{[] {}};
    Schedule(&job, Priority::LOW);
    WaitForAll();
    return RocksEnv() == parents ? 1 : 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(RocksEnv(), parents);
}

}  // namespace
}  // namespace cudaforge
