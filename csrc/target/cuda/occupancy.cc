#include "target/cuda/occupancy.h"

#include "base/integers.h"

namespace cudaforge {
namespace {

// Registers are allocated to warps in units of this many, in each quarter of a multiprocessor.
constexpr int kRegisterUnit = 256;
constexpr int kQuarters = 4;

int ByRegisters(const MultiprocessorLimits& sm, const BlockNeeds& needs, int64_t warps) {
  const int64_t a_warp = RoundUp(int64_t{needs.registers} * sm.warp_size, kRegisterUnit);
  if (a_warp == 0) return BlockLimits::kNoLimit;
  if (a_warp * RoundUp(warps, kQuarters) > sm.registers_per_block) return 0;
  return static_cast<int>(sm.registers / kQuarters / a_warp * kQuarters / warps);
}

}  // namespace

BlockLimits LimitsOfBlocks(const MultiprocessorLimits& sm, const BlockNeeds& needs) {
  const int64_t warps = CeilDiv(needs.threads, sm.warp_size);
  const int64_t unit = sm.capability_major >= 8 ? 128 : 256;
  const int64_t shared = RoundUp(needs.shared_bytes + sm.reserved_shared_bytes, unit);
  BlockLimits limits;
  limits.warps = static_cast<int>(sm.threads / sm.warp_size / warps);
  limits.blocks = sm.blocks;
  limits.registers = ByRegisters(sm, needs, warps);
  limits.shared = shared == 0 ? BlockLimits::kNoLimit : static_cast<int>(sm.shared_bytes / shared);
  return limits;
}

}  // namespace cudaforge
