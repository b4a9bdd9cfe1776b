// The RegionReference of a region: sets drawn on its device, ATen's answers there, and float64 on
// slices, which decides.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "signature/op_signature.h"
#include "verify/device_memory.h"
#include "verify/region_reference.h"

namespace cudaforge {

// Draws from `seed`, which is secret, as many sets as PlanDraws says. `memory` must outlive it.
// `free_bytes`: of the device; a quarter of them may be taken for float64 where a region cannot be
// cut into slices of the usual size. kUnsupported: this region cannot be judged. kNoMemory: not
// with the memory that is free now.
Result<std::unique_ptr<RegionReference>> MakeAtenRegionReference(const OpSignature& region,
                                                                 int device_index,
                                                                 DeviceMemory& memory,
                                                                 int64_t free_bytes, uint64_t seed);

}  // namespace cudaforge
