#include "base/append_only_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace cudaforge {
namespace {

struct Item {
  size_t hash;
  int number;
};

Item* FindNumber(const AppendOnlyTable<Item>& table, size_t hash, int number) {
  return table.Find(hash, [&](const Item& item) { return item.number == number; });
}

TEST(AppendOnlyTable, FindsWhatWasAddedAcrossGrowthAndCollisions) {
  AppendOnlyTable<Item> table(2);
  std::deque<Item> items;
  for (int n = 0; n < 1000; ++n) {
    const size_t hash = n % 3 == 0 ? 7 : static_cast<size_t>(n) * 0x9E3779B97F4A7C15u;
    EXPECT_EQ(FindNumber(table, hash, n), nullptr);
    table.Insert(hash, &items.emplace_back(Item{hash, n}));
  }
  for (Item& item : items) EXPECT_EQ(FindNumber(table, item.hash, item.number), &item);
  EXPECT_EQ(FindNumber(table, 7, 1001), nullptr);
}

// Eight readers and two writers, which share a lock: readers find all entries that they know to be
// inserted.
TEST(AppendOnlyTable, ReadersNeedNoLock) {
  constexpr int kItems = 4000;
  AppendOnlyTable<Item> table(2);
  std::vector<Item> items;
  for (int n = 0; n < kItems; ++n) items.push_back({static_cast<size_t>(n % 97) << 3, n});
  std::mutex mutex;
  int next = 0;
  std::atomic<int> added{0};
  std::atomic<int> lost{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (true) {
        const std::lock_guard lock(mutex);
        if (next == kItems) return;
        Item& item = items[static_cast<size_t>(next)];
        table.Insert(item.hash, &item);
        added.store(++next, std::memory_order_release);
      }
    });
  }
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      int seen = 0;
      while (seen < kItems) {
        seen = added.load(std::memory_order_acquire);
        for (int n = t; n < seen; n += 61) {
          Item& item = items[static_cast<size_t>(n)];
          if (FindNumber(table, item.hash, n) != &item) ++lost;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lost.load(), 0);
}

}  // namespace
}  // namespace cudaforge
