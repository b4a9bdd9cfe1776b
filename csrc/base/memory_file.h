// Memory files (memfd): bytes that processes share by a descriptor.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/status.h"

namespace cudaforge {

// An anonymous memory file of fixed size (sealed against growing and shrinking). With bytes given
// it is sealed against writing too.
Result<UniqueFd> MakeMemFile(std::span<const std::string_view> parts);
Result<UniqueFd> MakeMemFile(std::string_view bytes);
Result<UniqueFd> MakeMemFile(int64_t size);
// Another descriptor of the same file.
Result<UniqueFd> Duplicate(const UniqueFd& fd);
// All of it. kCorruption for anything but a plain file, or one of more than max_bytes.
Result<std::string> ReadMemFile(int fd, int64_t max_bytes);
// Exactly `bytes` bytes from `offset` on, into or out of `data`. kCorruption when the file is
// shorter.
Status ReadMemFileAt(int fd, int64_t offset, void* data, int64_t bytes);
Status WriteMemFileAt(int fd, int64_t offset, const void* data, int64_t bytes);

// A memory file's bytes in this address space. Move-only.
class MemFileMap {
 public:
  // kCorruption for a file that is not sealed against shrinking: reading it could then fault.
  static Result<MemFileMap> Map(int fd, bool writable);
  MemFileMap(MemFileMap&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MemFileMap& operator=(MemFileMap&&) = delete;
  MemFileMap(const MemFileMap&) = delete;
  MemFileMap& operator=(const MemFileMap&) = delete;
  ~MemFileMap();

  // Where `bytes` bytes at `offset` are; kCorruption when the file ends before.
  Result<char*> At(int64_t offset, int64_t bytes) const;

 private:
  MemFileMap(char* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  char* data_;
  int64_t bytes_;
};

}  // namespace cudaforge
