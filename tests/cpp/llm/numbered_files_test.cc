#include "llm/numbered_files.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "base/file.h"

namespace cudaforge {
namespace {

TEST(NumberedFilesTest, ContinuesFromTheHighest) {
  const Result<TempDir> dir = TempDir::Create("numbered_test");
  ASSERT_TRUE(dir.ok());
  const Cancel cancel;
  EXPECT_EQ(*WriteNumbered(dir->path(), "-a", "1", cancel), "0001");
  EXPECT_EQ(*WriteNumbered(dir->path(), "-b", "2", cancel), "0002");
  ASSERT_TRUE(WriteFileAtomic(dir->path() + "/0041-reply-to-none", "").ok());
  ASSERT_TRUE(WriteFileAtomic(dir->path() + "/99999999999999999999-a", "").ok());
  ASSERT_TRUE(WriteFileAtomic(dir->path() + "/notes", "").ok());
  EXPECT_EQ(*WriteNumbered(dir->path(), "-a", "3", cancel), "0042");
  ASSERT_TRUE(WriteFileAtomic(dir->path() + "/9999-x", "").ok());
  EXPECT_EQ(*WriteNumbered(dir->path(), "-a", "4", cancel), "10000");
  EXPECT_EQ(*ListNumbered(dir->path(), "-a"),
            (std::vector<std::string>{"0001-a", "0042-a", "10000-a"}));
  EXPECT_EQ(*ReadFile(dir->path() + "/0042-a"), "3");
}

TEST(NumberedFilesTest, WritersDoNotCollide) {
  const Result<TempDir> dir = TempDir::Create("numbered_test");
  ASSERT_TRUE(dir.ok());
  const Cancel cancel;
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&] {
      for (int j = 0; j < 10; ++j) EXPECT_TRUE(WriteNumbered(dir->path(), "-x", "", cancel).ok());
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(ListNumbered(dir->path(), "-x")->back(), "0040-x");
}

TEST(NumberedFilesTest, InvalidFolders) {
  const Cancel cancel;
  EXPECT_FALSE(WriteNumbered("/no/such/folder", "-a", "", cancel).ok());
  EXPECT_EQ(ListNumbered("/no/such/folder", "-a").status().code(), StatusCode::kNotFound);
}

TEST(NumberedFilesTest, CancelledWhileWaitingForTheLock) {
  const Result<TempDir> dir = TempDir::Create("numbered_test");
  ASSERT_TRUE(dir.ok());
  const Result<FileLock> lock = FileLock::Acquire(dir->path() + "/.lock", 0);
  ASSERT_TRUE(lock.ok());
  Cancel cancel;
  std::thread other([&cancel] { cancel.Set(); });
  EXPECT_EQ(WriteNumbered(dir->path(), "-a", "", cancel).status().code(), StatusCode::kCancelled);
  other.join();
}

}  // namespace
}  // namespace cudaforge
