// The RegionReference of a region: input sets on its device, ATen's answers to them, and float64 on
// slices, which decides.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "signature/op_signature.h"
#include "verify/device_memory.h"
#include "verify/region_reference.h"

namespace cudaforge {

// Draws the sets of PlanDraws from the secret `seed`. `memory` must outlive it. `free_bytes`: of
// the device; a quarter may be used for float64 if a region cannot be cut into slices of the usual
// size. kUnsupported: this region cannot be judged. kNoMemory: not with the free memory.
Result<std::unique_ptr<RegionReference>> MakeAtenRegionReference(const OpSignature& region,
                                                                 int device_index,
                                                                 DeviceMemory& memory,
                                                                 int64_t free_bytes, uint64_t seed);

}  // namespace cudaforge
