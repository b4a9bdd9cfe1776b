// SharedMemory: device memory that one process owns and other processes map (Target::Share and
// Target::Map).
#pragma once

#include <cstdint>
#include <utility>

#include "base/file.h"
#include "base/memory_file.h"
#include "base/status.h"
#include "target/device_buffer.h"

namespace cudaforge {

// On either side of shared memory, in each process that maps it, lie so many bytes of addresses
// that nothing is mapped at. A use of them is a memory fault: on the CPU a SIGSEGV, on cuda an
// illegal address error, which loses that process's context and nobody else's.
inline constexpr int64_t kMapGuardBytes = int64_t{64} << 20;
// A mapping begins so many granules, fewer than kMapShifts, after an address that is a multiple of
// kMapShifts granules. Memory that is mapped at shifts s and kMapShifts - 1 - s shows a kernel both
// values of each of those bits of its address.
inline constexpr int64_t kMapShifts = 64;

// The owner's mapping, readable and writable, between guards. Move-only. The memory is freed when
// this, every mapping and every exported descriptor are gone. On cuda the destructor waits for the
// device.
class SharedMemory {
 public:
  // `reader`: a descriptor that allows no writable mapping; invalid where there is no such kind.
  SharedMemory(DeviceBuffer buffer, UniqueFd fd, UniqueFd reader)
      : buffer_(std::move(buffer)), fd_(std::move(fd)), reader_(std::move(reader)) {}

  void* data() const { return buffer_.data(); }
  int64_t bytes() const { return buffer_.bytes(); }  // whole granules
  // A descriptor for Target::Map. Not writable: on the CPU it cannot be mapped for writing.
  Result<UniqueFd> Export(bool writable) const {
    return Duplicate(!writable && reader_.valid() ? reader_ : fd_);
  }

 private:
  DeviceBuffer buffer_;
  UniqueFd fd_;
  UniqueFd reader_;
};

}  // namespace cudaforge
