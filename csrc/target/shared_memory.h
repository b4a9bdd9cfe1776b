// SharedMemory: device memory that one process owns and others map (Target::Share and Target::Map).
#pragma once

#include <cstdint>
#include <utility>

#include "base/file.h"
#include "base/memory_file.h"
#include "base/status.h"
#include "target/device_buffer.h"

namespace cudaforge {

// Each mapping is surrounded by this many unmapped bytes. Access to them is a memory fault: a
// SIGSEGV on the CPU, an illegal address error on cuda, which loses that process's context.
inline constexpr int64_t kMapGuardBytes = int64_t{64} << 20;
// A mapping's address is a multiple of kMapShifts granules, plus a shift below kMapShifts granules.
// Shifts s and kMapShifts - 1 - s together show a kernel both values of each of those address bits.
inline constexpr int64_t kMapShifts = 64;

// The owner's mapping, readable and writable, between guards. Move-only. The memory is freed after
// this, every mapping and every exported descriptor. On cuda the destructor waits for the device.
class SharedMemory {
 public:
  // `reader`: a descriptor that allows no writable mapping; invalid if the system has none.
  SharedMemory(DeviceBuffer buffer, UniqueFd fd, UniqueFd reader)
      : buffer_(std::move(buffer)), fd_(std::move(fd)), reader_(std::move(reader)) {}

  void* data() const { return buffer_.data(); }
  int64_t bytes() const { return buffer_.bytes(); }  // whole granules
  // Returns a descriptor for Target::Map. Not writable: on the CPU it cannot be mapped for writing.
  Result<UniqueFd> Export(bool writable) const {
    return Duplicate(!writable && reader_.valid() ? reader_ : fd_);
  }

 private:
  DeviceBuffer buffer_;
  UniqueFd fd_;
  UniqueFd reader_;
};

}  // namespace cudaforge
