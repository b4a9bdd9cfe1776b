// Target's shared memory on the CPU: memory files of whole pages.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "target/device_buffer.h"
#include "target/shared_memory.h"

namespace cudaforge {

int64_t PageBytes();
// See Target::Share and Target::Map. Share reserves every page, so that later writes cannot fail.
Result<SharedMemory> ShareHostMemory(int64_t bytes);
Result<DeviceBuffer> MapHostMemory(int fd, int64_t bytes, bool writable, int64_t shift);

}  // namespace cudaforge
