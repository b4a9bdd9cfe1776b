// Files: whole-file reads, atomic writes, temporary folders and advisory locks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace cudaforge {

// Owns one file descriptor. Move-only.
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

// Reads a whole plain file. kInvalidArgument: it is larger than max_bytes, or is no plain file.
// Reading a pipe or device might never end.
Result<std::string> ReadFile(const std::string& path, size_t max_bytes = size_t{1} << 30);
// Writes a temporary file next to `path`, syncs it and renames it: readers see the old bytes or the
// new ones. Through a symbolic link, replaces the link's target. kInvalidArgument: `path` is there
// but is no plain file; it is not changed.
Status WriteFileAtomic(const std::string& path, std::string_view bytes);
// Creates the folder and its parents (mode 0700). Ok if it exists; kIoError if a plain file is in
// the way.
Status MakeDirs(const std::string& path);
bool PathExists(const std::string& path);
// Returns `path` as an absolute path, so that it stays valid when the program changes its folder.
// Returns `path` itself if the current folder was deleted.
std::string AbsolutePath(const std::string& path);

// A new folder under $TMPDIR, or under /tmp if that is unset or unusable. The destructor removes it
// with its contents. Errors are $TMPDIR's.
class TempDir {
 public:
  static Result<TempDir> Create(std::string_view prefix);
  TempDir(TempDir&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TempDir& operator=(TempDir&&) = delete;
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();
  const std::string& path() const { return path_; }
  // Removes all existing ones, for a process that exits without destructors. Thread-safe.
  static void RemoveAll();

 private:
  explicit TempDir(std::string path);
  std::string path_;
};

// A flock(2) on a file of ours, held until destruction.
class FileLock {
 public:
  enum class Kind { kExclusive, kShared };  // several shared locks can be held at once
  // Waits up to `timeout_ms` for the lock; kTimeout after that.
  static Result<FileLock> Acquire(const std::string& path, int timeout_ms,
                                  Kind kind = Kind::kExclusive);
  FileLock(FileLock&&) = default;
  FileLock& operator=(FileLock&&) = delete;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  // Returns true if `path` still names the locked file.
  bool IsAt(const std::string& path) const;
  // Unlocks explicitly, because a forked child shares the open file and would keep the lock.
  ~FileLock();

 private:
  explicit FileLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace cudaforge
