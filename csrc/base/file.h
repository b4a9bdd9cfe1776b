// Files: whole-file reads, atomic writes, temporary folders and advisory locks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace cudaforge {

// The owner of one file descriptor. Move-only.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Reset();
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// "CONTEXT: strerror": kNotFound for ENOENT, kNoMemory for ENOMEM, else kIoError.
Status ErrnoStatus(std::string_view context, int error_number);

// All of a plain file. kInvalidArgument: it is larger than max_bytes, or a pipe, device or folder,
// which might never end.
Result<std::string> ReadFile(const std::string& path, size_t max_bytes = size_t{1} << 30);
// Writes a temporary file beside `path`, syncs it and renames it: readers see the old bytes or the
// new. A symbolic link stays, and its target is replaced. kInvalidArgument: something that is no
// plain file is there, which is left untouched.
Status WriteFileAtomic(const std::string& path, std::string_view bytes);
// Creates the folder and its parents (mode 0700). Ok when it is there already; kIoError when a
// plain file is in the way.
Status MakeDirs(const std::string& path);
bool PathExists(const std::string& path);
// `path` from the current folder, so that it keeps its meaning when the program changes its folder.
// `path` as it is where the current folder has been deleted.
std::string AbsolutePath(const std::string& path);

// A fresh folder under $TMPDIR, or under /tmp where that is not set or takes none, removed with its
// contents by the destructor. The error is $TMPDIR's.
class TempDir {
 public:
  static Result<TempDir> Create(std::string_view prefix);
  TempDir(TempDir&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TempDir& operator=(TempDir&&) = delete;
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();
  const std::string& path() const { return path_; }
  // Removes all that there are, for a process that ends without destroying them. Thread-safe.
  static void RemoveAll();

 private:
  explicit TempDir(std::string path);
  std::string path_;
};

// A flock(2) on a file of our own, held until destruction.
class FileLock {
 public:
  enum class Kind { kExclusive, kShared };  // a shared one lets others be shared beside it
  // Waits up to `timeout_ms` for the lock; kTimeout after that.
  static Result<FileLock> Acquire(const std::string& path, int timeout_ms,
                                  Kind kind = Kind::kExclusive);
  FileLock(FileLock&&) = default;
  FileLock& operator=(FileLock&&) = delete;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  // Whether `path` is still the file that is locked.
  bool IsAt(const std::string& path) const;
  // Unlocks explicitly: a child forked meanwhile shares the open file and would keep the lock.
  ~FileLock();

 private:
  explicit FileLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace cudaforge
