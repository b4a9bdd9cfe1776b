#include "verify/impossible_time.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "base/text.h"
#include "signature/op_facts.h"

namespace cudaforge {
namespace {

// Returns true if every number of the first operand affects the result. Excludes operands that are
// selected from, partly skipped, or read for their sizes only.
bool AddsUpAll(const OpFacts& facts) {
  switch (facts.sums) {
    case OpSums::kNone:
    case OpSums::kLoss:
    case OpSums::kProduct:
    case OpSums::kConvolution:
      return false;
    default:
      return true;
  }
}

int64_t Bytes(const TensorSpec& spec) {
  return std::min(spec.StorageBytes(), spec.numel() * DTypeSize(spec.dtype));
}

int64_t LeastBytes(const OpSignature& region) {
  std::set<int64_t> read;  // inputs
  for (const Node& node : region.nodes) {
    if (!AddsUpAll(FactsOf(node.op)) || node.args.empty()) continue;
    const Json& first = node.args[0];
    if (IsTensorReference(first) && first.contains("in")) read.insert(first["in"].get<int64_t>());
  }
  for (const std::vector<int>& group : region.aliases) {
    for (const int input : group) read.erase(input);  // may be one tensor twice
  }
  int64_t bytes = 0;
  for (const int64_t input : read) bytes += Bytes(region.inputs[static_cast<size_t>(input)]);
  std::set<std::pair<int, int>> written;
  for (size_t o = 0; o < region.outputs.size(); ++o) {
    if (!written.emplace(region.outputs[o].node, region.outputs[o].out).second) continue;
    bytes += Bytes(region.output_spec(o));
  }
  return bytes;
}

}  // namespace

Verdict JudgeTime(const OpSignature& region, const DeviceArch& arch, double ns) {
  // Double data rate; kHz and bits give bytes per millisecond.
  const double bytes_per_ms = static_cast<double>(arch.memory_clock_khz.value_or(0)) * 2 *
                              static_cast<double>(arch.memory_bus_bits.value_or(0)) / 8;
  if (!arch.is_cuda() || bytes_per_ms <= 0 || !arch.l2_bytes.has_value()) return {};
  const int64_t bytes = LeastBytes(region) - *arch.l2_bytes;
  if (bytes <= 0) return {};
  const double least_ns = static_cast<double>(bytes) / bytes_per_ms * 1e6;
  if (ns >= least_ns / 2) return {};
  return {VerdictKind::kImpossibleTime,
          "its runs took " + Fixed(ns / 1e3, 1) + " us, but this device's memory needs at least " +
              Fixed(least_ns / 1e3, 1) + " us for the " + std::to_string(bytes) +
              " bytes that do not fit into the cache",
          {{"time_us", ns / 1e3}, {"least_us", least_ns / 1e3}, {"bytes", bytes}}};
}

}  // namespace cudaforge
