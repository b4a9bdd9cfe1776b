#include "target/target.h"

namespace cudaforge {

Result<DeviceBuffer> Target::AllocateFenced(int64_t) {
  return Status::Unsupported("this target has no fences");
}

}  // namespace cudaforge
