#include "verify/impossible_time.h"

#include <algorithm>
#include <cstdint>

#include "base/text.h"
#include "measure/roofline.h"
#include "signature/op_facts.h"

namespace cudaforge {
namespace {

bool ReadsInSteps(const Node& node) {
  const OpFacts& facts = FactsOf(node.op);
  return facts.kind == OpKind::kUnknown || facts.kind == OpKind::kContracts ||
         facts.dims == OpDims::kUnknown || facts.dims == OpDims::kWindows;
}

int64_t LeastBytes(const OpSignature& region) {
  if (std::ranges::none_of(region.nodes, ReadsInSteps)) return WorkOf(region).needed_bytes;
  int64_t written = 0;
  for (size_t o = 0; o < region.outputs.size(); ++o) {
    const bool again = std::ranges::any_of(
        region.outputs.begin(), region.outputs.begin() + static_cast<std::ptrdiff_t>(o),
        [&](const auto& other) {
          return other.node == region.outputs[o].node && other.out == region.outputs[o].out;
        });
    if (!again) written += region.output_spec(o).StorageBytes();
  }
  return written;
}

}  // namespace

Verdict JudgeTime(const OpSignature& region, const DeviceArch& arch, double ns) {
  // Both edges of the clock move data; kHz and bits: bytes a millisecond.
  const double bytes_per_ms = static_cast<double>(arch.memory_clock_khz.value_or(0)) * 2 *
                              static_cast<double>(arch.memory_bus_bits.value_or(0)) / 8;
  if (!arch.is_cuda() || bytes_per_ms <= 0 || !arch.l2_bytes.has_value()) return {};
  const int64_t bytes = LeastBytes(region) - *arch.l2_bytes;
  if (bytes <= 0) return {};
  const double least_ns = static_cast<double>(bytes) / bytes_per_ms * 1e6;
  if (ns >= least_ns / 2) return {};
  return {VerdictKind::kImpossibleTime,
          "its runs took " + Fixed(ns / 1e3, 1) + " us by the clock, and moving what it must, " +
              std::to_string(bytes) + " bytes beyond the cache, takes this device's memory " +
              Fixed(least_ns / 1e3, 1) + " us at the least",
          {{"time_us", ns / 1e3}, {"least_us", least_ns / 1e3}, {"bytes", bytes}}};
}

}  // namespace cudaforge
