// The passes over the elements, for CPU and CUDA: parts of verify/screen.h.
#pragma once

#include <vector>

#include "verify/device_memory.h"
#include "verify/screen.h"
#include "verify/walk_order.h"

namespace cudaforge {

struct ScreenPass {
  device::Totals totals;
  std::vector<device::BandSums> bands;  // kBands of them
};

// `args`: what the request determines (pointers, n, tiles, layout, kind, bitwise).
ScreenPass CpuScreenPass(device::ScreenArgs args);
// Its second half: computes the bands from args.keys, squares and counts of the tiles.
std::vector<device::BandSums> MergeTiles(const device::ScreenArgs& args);
Result<ScreenPass> CudaScreenPass(DeviceMemory& memory, device::ScreenArgs args);

// Checks the bytes between elements. `slots` places of `size` bytes. REQUIRES: a nested layout.
FillDamage CpuGaps(const void* data, uint64_t slots, int size, const device::Layout& layout,
                   const device::FillRule& rule, uint64_t seed);
Result<FillDamage> CudaGaps(DeviceMemory& memory, const void* data, uint64_t slots, int size,
                            const device::Layout& layout, const device::FillRule& rule,
                            uint64_t seed);

// Converts the kernels' counts to byte positions.
inline FillDamage DamageOf(uint64_t changed, uint64_t first) {
  return {static_cast<int64_t>(changed), changed == 0 ? -1 : static_cast<int64_t>(first)};
}

}  // namespace cudaforge
