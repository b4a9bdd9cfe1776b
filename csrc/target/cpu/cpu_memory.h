// Target's memory for other processes on the CPU: memory files, in whole pages.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "target/device_buffer.h"
#include "target/shared_memory.h"

namespace cudaforge {

int64_t PageBytes();
// See Target::Share and Target::Map. Share reserves every page, so that a later write finds it.
Result<SharedMemory> ShareHostMemory(int64_t bytes);
Result<DeviceBuffer> MapHostMemory(int fd, int64_t bytes, bool writable, int64_t shift);

}  // namespace cudaforge
