// PlacedBuffer: one buffer of a candidate, in memory that the verifier owns and the worker maps.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "target/shared_memory.h"
#include "target/target.h"
#include "verify/device_memory.h"
#include "worker/launch.h"
#include "worker/worker_client.h"

namespace cudaforge {

enum class Placement {
  kStart,   // at the mapping's first byte, so that reads before it fault
  kEnd,     // as near to its last byte as alignment allows
  kInside,  // at a random place, with no more alignment than requested
};

// Move-only. The worker client, the target and the device memory must outlive it.
class PlacedBuffer {
 public:
  // Allocates up to `bytes` bytes, not mapped in the worker yet. kNoMemory.
  static Result<PlacedBuffer> Make(Target& target, DeviceMemory& memory, CandidateRunner& worker,
                                   int64_t bytes);
  // Makes the worker map it at two addresses, the second one with the second call. They differ in
  // all bits that a shift controls (kMapShifts). kNoMemory.
  Status Map(bool writable);
  // Makes the worker map a writable buffer at two more addresses, read-only. Does nothing the
  // second time. kNoMemory.
  Status MapForReading();
  PlacedBuffer(PlacedBuffer&&) noexcept = default;
  PlacedBuffer& operator=(PlacedBuffer&& other) noexcept;
  ~PlacedBuffer();

  int64_t capacity() const { return memory_.bytes() - kSlack; }
  // Moves the buffer, and fills the bytes around it from `seed`. Places of kInside come in pairs:
  // the second differs from the random first in every bit that a place controls. REQUIRES: bytes <=
  // capacity(); alignment is a power of two, or a multiple of one, below 64 KiB.
  Status Place(int64_t bytes, int64_t alignment, Placement placement, uint64_t seed);
  void* data() const { return static_cast<char*>(memory_.data()) + offset_; }
  int64_t bytes() const { return bytes_; }
  int64_t alignment() const { return alignment_; }
  Placed placed(uint64_t address) const { return {maps_[address % maps_.size()], offset_}; }
  // REQUIRES: MapForReading.
  Placed placed_for_reading(uint64_t address) const {
    return {reading_maps_[address % reading_maps_.size()], offset_};
  }
  // Checks the bytes around the buffer against what Place wrote. `first` counts from the buffer's
  // first byte; negative: before it.
  Result<FillDamage> Around() const;

 private:
  static constexpr int64_t kSlack = 4096;  // for Placement::kInside

  PlacedBuffer(SharedMemory memory, DeviceMemory& device, CandidateRunner& worker)
      : memory_(std::move(memory)), device_(&device), worker_(&worker) {}
  Result<int> MapOnce(bool writable);
  void Unmap();

  SharedMemory memory_;
  DeviceMemory* device_;
  CandidateRunner* worker_;
  std::vector<int> maps_, reading_maps_;
  int64_t offset_ = 0, bytes_ = 0, alignment_ = 1;
  uint64_t seed_ = 0;
  std::optional<uint64_t> last_inside_;  // in alignments; the next place differs from it
  int64_t shift_ = 0;                    // of the first address
};

}  // namespace cudaforge
