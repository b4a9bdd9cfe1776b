// Several real processes on one cache. A child runs this test binary; environment variables say
// what it writes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "base/file.h"
#include "base/subprocess.h"
#include "tests/cpp/cache/test_records.h"

namespace cudaforge {
namespace {

constexpr int kEach = 200;

std::vector<std::string> ChildCommand(const std::string& path, int first, int count) {
  return {"/usr/bin/env",
          "--unset=GTEST_TOTAL_SHARDS",  // the child's one test is not shared out
          "--unset=GTEST_SHARD_INDEX",
          "CF_TEST_CACHE=" + path,
          "CF_TEST_FIRST=" + std::to_string(first),
          "CF_TEST_COUNT=" + std::to_string(count),
          std::filesystem::read_symlink("/proc/self/exe").string(),
          "--gtest_filter=Processes.WritesOneByOne"};
}

int FromEnvironment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// The child's part; also a small test by itself.
TEST(Processes, WritesOneByOne) {
  TempDir folder = TestFolder();
  const char* told = std::getenv("CF_TEST_CACHE");
  auto store = OpenStore(told != nullptr ? told : folder.path() + "/cache");
  const int first = FromEnvironment("CF_TEST_FIRST", 0);
  const int end = first + FromEnvironment("CF_TEST_COUNT", 3);
  for (int i = first; i < end; ++i) {
    ASSERT_TRUE(store->Put(TestWinner(i, 1.5, 20'000)).ok()) << i;
    // Written after the store's write returned: from here on the record may not be lost.
    if (told != nullptr) {
      ASSERT_TRUE(MakeDirs(std::string(told) + ".said/" + std::to_string(i)).ok());
    }
    ASSERT_NE(store->Get(TestWinner(i).key, kTestArch), nullptr) << i;
  }
}

TEST(Processes, ConcurrentWritersLoseNothing) {
  TempDir folder = TestFolder();
  const std::string path = folder.path() + "/cache";
  std::vector<std::thread> threads;
  std::vector<ProcessResult> results(2);
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      auto result = RunProcess(ChildCommand(path, i * kEach, kEach), {.timeout_ms = 200'000});
      if (result.ok()) results[static_cast<size_t>(i)] = *result;
    });
  }
  // A concurrent reader: everything that it gets must be correct.
  auto reader = OpenRocksKernelStore(path, false).value();
  for (int round = 0; round < 50; ++round) {
    for (int i : {round, kEach + round}) {
      auto record = reader->Get(TestWinner(i).key, kTestArch);
      if (record != nullptr) {
        EXPECT_EQ(record->variants[0].binary, TestWinner(i, 1.5, 20'000).variants[0].binary);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (std::thread& thread : threads) thread.join();
  for (const ProcessResult& result : results) EXPECT_EQ(result.exit_code, 0) << result.output;
  auto store = OpenStore(path);
  for (int i = 0; i < 2 * kEach; ++i) {
    EXPECT_NE(store->Get(TestWinner(i).key, kTestArch), nullptr) << i;
  }
  EXPECT_EQ(store->counters().corrupt, 0);
  EXPECT_EQ(reader->counters().corrupt, 0);
}

TEST(Processes, KilledWriterLosesNothingWritten) {
  TempDir folder = TestFolder();
  const std::string path = folder.path() + "/cache";
  std::mt19937 random(std::random_device{}());
  int said = 0;
  for (int round = 0; round < 6; ++round) {
    auto child = ChildProcess::Start(ChildCommand(path, round * 1000, 900)).value();
    // At any time during its writes.
    const std::string first = path + ".said/" + std::to_string(round * 1000);
    for (int i = 0; i < 6000 && !PathExists(first); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ASSERT_TRUE(PathExists(first));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 200'000));
    (void)child.Kill();
    auto store = OpenStore(path);
    said = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path + ".said")) {
      const int i = std::atoi(entry.path().filename().c_str());
      ++said;
      auto record = store->Get(TestWinner(i).key, kTestArch);
      ASSERT_NE(record, nullptr) << i;
      EXPECT_EQ(record->variants[0].binary, TestWinner(i, 1.5, 20'000).variants[0].binary) << i;
    }
    EXPECT_TRUE(store->ForEach(kTestArch, [](const CacheRecord&) { return true; }).ok());
    EXPECT_EQ(store->counters().corrupt, 0);
    EXPECT_EQ(store->counters().errors, 0);
    EXPECT_TRUE(store->health().ok());
    ASSERT_TRUE(store->Put(TestWinner(100'000 + round)).ok());
  }
  EXPECT_GE(said, 6);
  EXPECT_FALSE(PathExists(path + "/db.damaged-1"));
}

}  // namespace
}  // namespace cudaforge
