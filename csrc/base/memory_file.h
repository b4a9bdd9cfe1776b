// Memory files (memfd): bytes that processes share through a descriptor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"

namespace cudaforge {

// Makes an anonymous memory file of fixed size (sealed against growing and shrinking). With bytes
// given, it is sealed against writing too.
Result<UniqueFd> MakeMemFile(std::string_view bytes);
Result<UniqueFd> MakeMemFile(int64_t size);
// Another descriptor of the same file.
Result<UniqueFd> Duplicate(const UniqueFd& fd);
// Reads the whole file. kCorruption: not a plain file, or over max_bytes.
Result<std::string> ReadMemFile(int fd, int64_t max_bytes);
// Reads or writes exactly `bytes` bytes at `offset`. kCorruption: the file is shorter.
Status ReadMemFileAt(int fd, int64_t offset, void* data, int64_t bytes);
Status WriteMemFileAt(int fd, int64_t offset, const void* data, int64_t bytes);

}  // namespace cudaforge
