#include "verify/placed_buffer.h"

#include <bit>
#include <random>
#include <utility>

#include "base/random.h"

namespace cudaforge {

Result<PlacedBuffer> PlacedBuffer::Make(Target& target, DeviceMemory& memory,
                                        CandidateRunner& worker, int64_t bytes) {
  CF_ASSIGN_OR_RETURN(SharedMemory shared, target.Share(bytes + kSlack));
  return PlacedBuffer(std::move(shared), memory, worker);
}

Result<int> PlacedBuffer::MapOnce(bool writable) {
  if (maps_.empty()) {
    std::random_device random;
    shift_ = std::uniform_int_distribution<int64_t>(0, kMapShifts - 1)(random);
  } else {
    shift_ = kMapShifts - 1 - shift_;
  }
  return worker_->Map(memory_, writable, shift_);
}

Status PlacedBuffer::Map(bool writable) {
  CF_ASSIGN_OR_RETURN(const int id, MapOnce(writable));
  maps_.push_back(id);
  return Status::Ok();
}

Status PlacedBuffer::MapForReading() {
  while (reading_maps_.size() < 2) {
    CF_ASSIGN_OR_RETURN(const int id, MapOnce(/*writable=*/false));
    reading_maps_.push_back(id);
  }
  return Status::Ok();
}

PlacedBuffer& PlacedBuffer::operator=(PlacedBuffer&& other) noexcept {
  Unmap();
  memory_ = std::move(other.memory_);
  device_ = other.device_;
  worker_ = other.worker_;
  maps_ = std::move(other.maps_);
  reading_maps_ = std::move(other.reading_maps_);
  other.maps_.clear();
  other.reading_maps_.clear();
  offset_ = other.offset_;
  bytes_ = other.bytes_;
  alignment_ = other.alignment_;
  seed_ = other.seed_;
  last_inside_ = other.last_inside_;
  shift_ = other.shift_;
  return *this;
}

PlacedBuffer::~PlacedBuffer() { Unmap(); }

void PlacedBuffer::Unmap() {
  for (std::vector<int>* maps : {&maps_, &reading_maps_}) {
    for (const int id : *maps) (void)worker_->Unmap(id);  // a worker that exited has unmapped all
    maps->clear();
  }
}

Status PlacedBuffer::Place(int64_t bytes, int64_t alignment, Placement placement, uint64_t seed) {
  CF_CHECK(bytes <= capacity()) << "a buffer of " << bytes << " bytes in " << capacity();
  const int64_t room = (memory_.bytes() - bytes) / alignment;  // in units of the alignment
  bytes_ = bytes;
  alignment_ = alignment;
  seed_ = seed;
  offset_ = 0;
  if (placement == Placement::kEnd) offset_ = room * alignment;
  if (placement == Placement::kInside) {
    const uint64_t places = std::bit_floor(static_cast<uint64_t>(room) + 1);
    const uint64_t drawn = SplitMix(seed).Below(places);
    const uint64_t place = last_inside_.has_value() ? ~*last_inside_ & (places - 1) : drawn;
    last_inside_ = last_inside_.has_value() ? std::nullopt : std::optional(place);
    offset_ = alignment * static_cast<int64_t>(place);
  }
  const FillPattern pattern = seed % 2 == 0 ? FillPattern::kNan : FillPattern::kNumbers;
  CF_RETURN_IF_ERROR(device_->Fill(memory_.data(), offset_, pattern, seed));
  return device_->Fill(static_cast<char*>(data()) + bytes_, memory_.bytes() - offset_ - bytes_,
                       pattern, seed + 1);
}

Result<FillDamage> PlacedBuffer::Around() const {
  const FillPattern pattern = seed_ % 2 == 0 ? FillPattern::kNan : FillPattern::kNumbers;
  CF_ASSIGN_OR_RETURN(FillDamage before,
                      device_->CheckFill(memory_.data(), offset_, pattern, seed_));
  CF_ASSIGN_OR_RETURN(FillDamage after,
                      device_->CheckFill(static_cast<char*>(data()) + bytes_,
                                         memory_.bytes() - offset_ - bytes_, pattern, seed_ + 1));
  before.first -= offset_;
  after.first += bytes_;
  if (before.changed == 0) return after;
  before.changed += after.changed;
  return before;
}

}  // namespace cudaforge
