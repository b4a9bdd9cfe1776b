#include "target/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/cpp/forked.h"

namespace cudaforge {
namespace {

struct Counts {
  explicit Counts(int64_t n) : hits(static_cast<size_t>(n)) {}
  std::vector<std::atomic<int>> hits;
  std::atomic<int> calls{0};
};

void Count(void* context, int64_t begin, int64_t end) {
  auto& counts = *static_cast<Counts*>(context);
  counts.calls++;
  for (int64_t i = begin; i < end; ++i) counts.hits[static_cast<size_t>(i)]++;
}

TEST(ThreadPool, CoversEachIndexOnce) {
  ThreadPool pool(4);
  EXPECT_EQ(pool.threads(), 4);
  for (const int64_t n : {1, 2, 3, 4, 5, 7, 64, 1000, 1001}) {
    for (const int64_t grain : {1, 2, 300, 5000}) {
      Counts counts(n);
      pool.Run(n, grain, Count, &counts);
      for (const auto& hits : counts.hits) ASSERT_EQ(hits.load(), 1) << n << " " << grain;
      EXPECT_LE(counts.calls.load(), 4);
      EXPECT_TRUE(n > grain || counts.calls.load() == 1);
    }
  }
  pool.Run(
      0, 1, [](void*, int64_t, int64_t) { FAIL(); }, nullptr);
}

TEST(ThreadPool, NestedCallsRunInPlace) {
  static ThreadPool* const pool = new ThreadPool(3);
  std::atomic<int64_t> sum{0};
  pool->Run(
      9, 1,
      [](void* context, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          pool->Run(
              5, 1,
              [](void* c, int64_t b, int64_t e) {
                *static_cast<std::atomic<int64_t>*>(c) += e - b;
              },
              context);
        }
      },
      &sum);
  EXPECT_EQ(sum.load(), 45);
}

TEST(ThreadPool, ConcurrentCallersTakeTurns) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::atomic<int> bad{0};
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        Counts counts(37);
        pool.Run(37, 1, Count, &counts);
        for (const auto& hits : counts.hits) bad += hits.load() != 1;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(bad.load(), 0);
}

TEST(ThreadPool, ForkedChildHasOwnThreads) {
  const auto sum = [] {
    Counts counts(64);
    PoolParallelFor(64, 1, Count, &counts);
    return static_cast<int>(
        std::count_if(counts.hits.begin(), counts.hits.end(), [](auto& n) { return n == 1; }));
  };
  ASSERT_GT(ThreadPool::Global(3).threads(), 1);  // which a child would wait for
  EXPECT_EQ(sum(), 64);
  EXPECT_EQ(InForkedChild(sum), 64);
  EXPECT_EQ(sum(), 64);
}

}  // namespace
}  // namespace cudaforge
