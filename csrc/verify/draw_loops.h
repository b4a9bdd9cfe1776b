// Draws on the CPU: device/draw.h in loops over memory, compiled for several instruction sets.
#pragma once

#include <cstdint>

#include "verify/device/drawn_tensor.h"

namespace cudaforge {

// Writes elements [begin, end) of the storage. Thread-safe for disjoint ranges. REQUIRES: `begin`
// is a multiple of 4; `storage` is aligned to the element size and holds `end` elements.
void DrawRange(const device::DrawnTensor& tensor, const device::DrawKey& key, int64_t begin,
               int64_t end, void* storage);

}  // namespace cudaforge
