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
  kStart,   // at the mapping's first byte: what is read before it is not mapped
  kEnd,     // as near to its last byte as alignment allows
  kInside,  // somewhere, with no more alignment than is asked for
};

// Move-only. The worker client, the target and the device memory must outlive it.
class PlacedBuffer {
 public:
  // Memory for `bytes` bytes or fewer, which the worker does not map yet. kNoMemory.
  static Result<PlacedBuffer> Make(Target& target, DeviceMemory& memory, CandidateRunner& worker,
                                   int64_t bytes);
  // Has the worker map it at two addresses, the second one with the second call; they differ in
  // all bits that a shift decides (kMapShifts). kNoMemory.
  Status Map(bool writable);
  PlacedBuffer(PlacedBuffer&&) noexcept = default;
  PlacedBuffer& operator=(PlacedBuffer&& other) noexcept;
  ~PlacedBuffer();

  int64_t capacity() const { return memory_.bytes() - kSlack; }
  // Where the buffer lies from now on. The bytes around it are filled by `seed`. Places for kInside
  // come in pairs: the first is drawn, and the second differs from it in every bit that a place
  // decides. REQUIRES: bytes <= capacity(); alignment is a power of two, or a multiple of one,
  // below 64 KiB.
  Status Place(int64_t bytes, int64_t alignment, Placement placement, uint64_t seed);
  void* data() const { return static_cast<char*>(memory_.data()) + offset_; }
  int64_t bytes() const { return bytes_; }
  int64_t alignment() const { return alignment_; }
  Placed placed(uint64_t address) const { return {maps_[address % maps_.size()], offset_}; }
  // Bytes around the buffer that are not what Place wrote. `first` counts from the buffer's first
  // byte: below 0 before it.
  Result<FillDamage> Around() const;

 private:
  static constexpr int64_t kSlack = 4096;  // for Placement::kInside

  PlacedBuffer(SharedMemory memory, DeviceMemory& device, CandidateRunner& worker)
      : memory_(std::move(memory)), device_(&device), worker_(&worker) {}
  void Unmap();

  SharedMemory memory_;
  DeviceMemory* device_;
  CandidateRunner* worker_;
  std::vector<int> maps_;
  int64_t offset_ = 0, bytes_ = 0, alignment_ = 1;
  uint64_t seed_ = 0;
  std::optional<uint64_t> last_inside_;  // in alignments, where the next is to differ from it
  int64_t shift_ = 0;                    // of the first address
};

}  // namespace cudaforge
