// Memory files (memfd): bytes that processes share by a descriptor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"

namespace cudaforge {

// An anonymous memory file of fixed size (sealed against growing and shrinking). With bytes given
// it is sealed against writing too.
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

}  // namespace cudaforge
