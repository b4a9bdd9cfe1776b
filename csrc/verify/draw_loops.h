// Drawing on the CPU: the text of device/draw.h in loops over runs of memory, compiled for several
// instruction sets.
#pragma once

#include <cstdint>

#include "verify/device/drawn_tensor.h"

namespace cudaforge {

// Writes elements [begin, end) of the storage. Thread-safe for ranges that do not overlap.
// REQUIRES: `begin` is a multiple of 4; `storage` is a multiple of the element size and holds `end`
// elements.
void DrawRange(const device::DrawnTensor& tensor, const device::DrawKey& key, int64_t begin,
               int64_t end, void* storage);

}  // namespace cudaforge
