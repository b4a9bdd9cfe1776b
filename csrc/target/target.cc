#include "target/target.h"

#include <random>

namespace cudaforge {

int64_t RandomMapShift() {
  std::random_device random;
  return std::uniform_int_distribution<int64_t>(0, kMapShifts - 1)(random);
}

Result<DeviceBuffer> Target::AllocateFenced(int64_t) {
  return Status::Unsupported("this target has no fences");
}

}  // namespace cudaforge
