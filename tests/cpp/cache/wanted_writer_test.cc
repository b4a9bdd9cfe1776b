#include "cache/wanted_writer.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

namespace cudaforge {
namespace {

WantedRegion Region(int number) {
  const std::string digits = std::to_string(number);
  return {std::string(64 - digits.size(), '0') + digits, "cpu:test", Json::object()};
}

void Unexpected(const Status& status) { ADD_FAILURE() << status.ToString(); }

TEST(WantedWriter, FlushWritesToTheGivenStore) {
  const std::shared_ptr<KernelStore> first = MakeMemoryKernelStore();
  const std::shared_ptr<KernelStore> second = MakeMemoryKernelStore();
  WantedWriter writer(&Unexpected);
  writer.Flush();
  writer.Add(first, Region(1));
  writer.Add(second, Region(2));
  writer.Add(first, Region(3));
  writer.Flush();
  EXPECT_EQ(first->Wanted("cpu:test").size(), 2u);
  EXPECT_EQ(second->Wanted("cpu:test").size(), 1u);
}

// Each thread has its own store. Reading a list takes time in proportion to its length, so reading
// one that another thread extends might never end. The other thread's store is read only after the
// last flush.
TEST(WantedWriter, FlushEndsWhileOthersAddAndNothingIsLost) {
  const std::shared_ptr<KernelStore> own = MakeMemoryKernelStore();
  const std::shared_ptr<KernelStore> others = MakeMemoryKernelStore();
  std::atomic<bool> ended = false;
  std::atomic<int> added = 0;
  {
    WantedWriter writer(&Unexpected);
    std::thread adds([&] {
      while (!ended && added < 5'000) {  // a busy machine adds faster than it writes
        writer.Add(others, Region(added++));
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
    while (added == 0) std::this_thread::yield();
    for (int i = 0; i < 200; ++i) {
      writer.Add(own, Region(i));
      writer.Flush();
      EXPECT_EQ(static_cast<int>(own->Wanted("cpu:test").size()), i + 1);
    }
    const int before = added - 1;  // the last one may not be written yet
    writer.Flush();
    EXPECT_GE(static_cast<int>(others->Wanted("cpu:test").size()), before);
    ended = true;
    adds.join();
  }
  EXPECT_EQ(static_cast<int>(others->Wanted("cpu:test").size()), added.load());
}

TEST(WantedWriter, AddAfterEndWritesAtOnce) {
  const std::shared_ptr<KernelStore> store = MakeMemoryKernelStore();
  WantedWriter writer(&Unexpected);
  writer.Add(store, Region(1));
  writer.End();
  EXPECT_EQ(store->Wanted("cpu:test").size(), 1u);
  writer.Add(store, Region(2));
  EXPECT_EQ(store->Wanted("cpu:test").size(), 2u);
  writer.Flush();
  writer.End();
}

TEST(WantedWriter, AddWithoutAThreadWritesAtOnce) {
  const std::shared_ptr<KernelStore> store = MakeMemoryKernelStore();
  WantedWriter writer(&Unexpected);
  pthread_attr_t usual, huge;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_getattr_default_np(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 50), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  writer.Add(store, Region(1));
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  EXPECT_EQ(store->Wanted("cpu:test").size(), 1u);
  writer.Flush();
  writer.Add(store, Region(2));
  writer.Flush();
  EXPECT_EQ(store->Wanted("cpu:test").size(), 2u);
  pthread_attr_destroy(&usual);
  pthread_attr_destroy(&huge);
}

}  // namespace
}  // namespace cudaforge
