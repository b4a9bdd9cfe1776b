#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

namespace cudaforge {
namespace {

TEST(FileTest, AtomicWriteReplacesAndLeavesNothingBehind) {
  Result<TempDir> dir = TempDir::Create("file_test");
  ASSERT_TRUE(dir.ok());
  const std::string path = dir->path() + "/data";
  ASSERT_TRUE(WriteFileAtomic(path, "old").ok());
  ASSERT_TRUE(WriteFileAtomic(path, std::string("new\0bytes", 9)).ok());
  EXPECT_EQ(*ReadFile(path), std::string("new\0bytes", 9));
  EXPECT_EQ(system(("test $(ls -A " + dir->path() + " | wc -l) = 1").c_str()), 0);
}

TEST(FileTest, ReadReportsMissingAndTooLarge) {
  Result<TempDir> dir = TempDir::Create("file_test");
  EXPECT_EQ(ReadFile(dir->path() + "/none").status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(WriteFileAtomic(dir->path() + "/ten", "0123456789").ok());
  EXPECT_TRUE(ReadFile(dir->path() + "/ten", 10).ok());
  EXPECT_FALSE(ReadFile(dir->path() + "/ten", 9).ok());
}

TEST(FileTest, OtherThanPlainFilesAreKept) {
  Result<TempDir> dir = TempDir::Create("file_test");
  const std::string pipe = dir->path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(ReadFile(pipe).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteFileAtomic(pipe, "bytes").code(), StatusCode::kInvalidArgument);
  struct stat info;
  ASSERT_EQ(lstat(pipe.c_str(), &info), 0);
  EXPECT_TRUE(S_ISFIFO(info.st_mode));
  EXPECT_EQ(ReadFile(dir->path()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteFileAtomic(dir->path(), "bytes").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile("/dev/zero", 100).status().code(), StatusCode::kInvalidArgument);
}

TEST(FileTest, LinksTargetIsReplaced) {
  Result<TempDir> dir = TempDir::Create("file_test");
  const std::string target = dir->path() + "/target", link = dir->path() + "/link";
  ASSERT_TRUE(WriteFileAtomic(target, "old").ok());
  ASSERT_EQ(symlink("target", link.c_str()), 0);
  ASSERT_TRUE(WriteFileAtomic(link, "new").ok());
  struct stat info;
  ASSERT_EQ(lstat(link.c_str(), &info), 0);
  EXPECT_TRUE(S_ISLNK(info.st_mode));
  EXPECT_EQ(*ReadFile(target), "new");
}

TEST(FileTest, MakeDirsIsIdempotentAndSeesAPlainFile) {
  Result<TempDir> dir = TempDir::Create("file_test");
  EXPECT_TRUE(MakeDirs(dir->path() + "/a/b/c").ok());
  EXPECT_TRUE(MakeDirs(dir->path() + "/a/b/c").ok());
  struct stat info;
  ASSERT_EQ(stat((dir->path() + "/a/b").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_TRUE(WriteFileAtomic(dir->path() + "/plain", "x").ok());
  EXPECT_FALSE(MakeDirs(dir->path() + "/plain").ok());
  EXPECT_FALSE(MakeDirs(dir->path() + "/plain/below").ok());
  EXPECT_EQ(*ReadFile(dir->path() + "/plain"), "x");
}

TEST(FileTest, TempDirFallsBackToTmp) {
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("TMPDIR", "/no/such/folder", 1);
  Result<TempDir> dir = TempDir::Create("file_test");
  before == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", kept.c_str(), 1);
  ASSERT_TRUE(dir.ok()) << dir.status().ToString();
  EXPECT_TRUE(dir->path().starts_with("/tmp/file_test"));
}

TEST(FileTest, PathsStayWhenTheFolderChanges) {
  EXPECT_EQ(AbsolutePath("/a/b"), "/a/b");
  const std::filesystem::path before = std::filesystem::current_path();
  EXPECT_EQ(AbsolutePath("a"), (before / "a").string());
  const Result<TempDir> there = TempDir::Create("file_test");
  ASSERT_TRUE(there.ok());
  const char* wanted = std::getenv("TMPDIR");
  const std::string kept = wanted != nullptr ? wanted : "";
  std::filesystem::current_path(there->path());
  setenv("TMPDIR", ".", 1);
  const Result<TempDir> relative = TempDir::Create("file_test");
  wanted == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", kept.c_str(), 1);
  std::filesystem::current_path(before);
  ASSERT_TRUE(relative.ok());
  EXPECT_TRUE(PathExists(relative->path())) << relative->path();
}

TEST(FileTest, TempDirIsRemoved) {
  std::string path;
  {
    Result<TempDir> dir = TempDir::Create("file_test");
    path = dir->path();
    ASSERT_TRUE(WriteFileAtomic(path + "/x", "x").ok());
  }
  EXPECT_FALSE(PathExists(path));
}

TEST(FileTest, AllTempDirsAreRemovedAtOnce) {
  const Result<TempDir> one = TempDir::Create("file_test"), other = TempDir::Create("file_test");
  ASSERT_TRUE(WriteFileAtomic(one->path() + "/x", "x").ok());
  std::string gone;
  {
    const Result<TempDir> third = TempDir::Create("file_test");
    gone = third->path();
  }
  ASSERT_TRUE(WriteFileAtomic(gone, "no folder of ours").ok());
  TempDir::RemoveAll();
  EXPECT_FALSE(PathExists(one->path()));
  EXPECT_FALSE(PathExists(other->path()));
  EXPECT_TRUE(PathExists(gone));
  std::filesystem::remove(gone);
}

TEST(FileLockTest, ExcludesUntilReleased) {
  Result<TempDir> dir = TempDir::Create("file_test");
  const std::string path = dir->path() + "/lock";
  {
    Result<FileLock> first = FileLock::Acquire(path, 0);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(FileLock::Acquire(path, 20).status().code(), StatusCode::kTimeout);
  }
  EXPECT_TRUE(FileLock::Acquire(path, 0).ok());
}

TEST(FileLockTest, KnowsWhetherItsFileIsStillThere) {
  Result<TempDir> dir = TempDir::Create("file_test");
  const std::string path = dir->path() + "/lock";
  const Result<FileLock> lock = FileLock::Acquire(path, 0);
  EXPECT_TRUE(lock->IsAt(path));
  std::filesystem::remove(path);
  EXPECT_FALSE(lock->IsAt(path));
  const Result<FileLock> other = FileLock::Acquire(path, 0);
  EXPECT_TRUE(other.ok() && other->IsAt(path));
  EXPECT_FALSE(lock->IsAt(path));
}

TEST(FileLockTest, ForkedChildDoesNotKeepTheLock) {
  Result<TempDir> dir = TempDir::Create("file_test");
  const std::string path = dir->path() + "/lock";
  std::optional<FileLock> lock;
  {
    Result<FileLock> acquired = FileLock::Acquire(path, 0);
    ASSERT_TRUE(acquired.ok());
    lock.emplace(std::move(acquired).value());
  }
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  lock.reset();
  EXPECT_TRUE(FileLock::Acquire(path, 0).ok());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(UniqueFdTest, MovesAndCloses) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  UniqueFd reader(ends[0]);
  {
    UniqueFd writer(ends[1]);
    UniqueFd moved = std::move(writer);
    EXPECT_FALSE(writer.valid());  // NOLINT(bugprone-use-after-move)
    EXPECT_TRUE(moved.valid());
  }
  char byte;
  EXPECT_EQ(read(reader.get(), &byte, 1), 0);  // end of file: the writer was closed
}

}  // namespace
}  // namespace cudaforge
