// The screen on CUDA: see verify/screen.h and verify/device/screen_kernels.cu.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "verify/screen_passes.h"

namespace cudaforge {
namespace {

constexpr unsigned kTileThreads = 64;   // kScreenThreads of the kernels
constexpr unsigned kBandThreads = 256;  // kMergeThreads
constexpr unsigned kGapThreads = 256;
constexpr int64_t kGapBlocksPerMultiprocessor = 8;

const char* KernelOf(device::ElementKind kind) {
  switch (kind) {
    case device::ElementKind::kFloat32:
      return "screen_float32";
    case device::ElementKind::kFloat16:
      return "screen_float16";
    case device::ElementKind::kBFloat16:
      return "screen_bfloat16";
    case device::ElementKind::kFloat64:
      return "screen_float64";
    case device::ElementKind::kInt64:
      return "screen_int64";
    case device::ElementKind::kInt32:
      return "screen_int32";
    case device::ElementKind::kBool:
      break;
  }
  return "screen_bool";
}

}  // namespace

Result<ScreenPass> CudaScreenPass(DeviceMemory& memory, device::ScreenArgs args) {
  // Data for the host comes first: totals, then bands.
  constexpr size_t kBandsAt = 64;
  constexpr size_t kBack = kBandsAt + device::kBands * sizeof(device::BandSums);
  static_assert(sizeof(device::Totals) <= kBandsAt && kBack % 16 == 0);
  const size_t entries = args.tiles * device::kBands;
  CF_ASSIGN_OR_RETURN(void* const scratch,
                      memory.Scratch(static_cast<int64_t>(kBack + entries * 16)));
  auto* const base = static_cast<std::byte*>(scratch);
  args.totals = reinterpret_cast<device::Totals*>(base);
  args.bands = reinterpret_cast<device::BandSums*>(base + kBandsAt);
  args.keys = reinterpret_cast<uint64_t*>(base + kBack);
  args.squares = reinterpret_cast<float*>(base + kBack + entries * 8);
  args.counts = reinterpret_cast<uint32_t*>(base + kBack + entries * 12);
  ScreenPass pass;
  CF_RETURN_IF_ERROR(memory.CopyFromHost(base, &pass.totals, sizeof(pass.totals)));
  void* const params[] = {&args};
  OwnKernels& kernels = *memory.kernels();
  CF_RETURN_IF_ERROR(
      kernels.Launch(KernelOf(args.kind), static_cast<unsigned>(args.tiles), kTileThreads, params));
  CF_RETURN_IF_ERROR(kernels.Launch("screen_merge", device::kBands, kBandThreads, params));
  std::vector<std::byte> back(kBack);
  CF_RETURN_IF_ERROR(memory.CopyToHost(back.data(), base, static_cast<int64_t>(kBack)));
  std::memcpy(&pass.totals, back.data(), sizeof(pass.totals));
  pass.bands.resize(device::kBands);
  std::memcpy(static_cast<void*>(pass.bands.data()), back.data() + kBandsAt, kBack - kBandsAt);
  return pass;
}

Result<FillDamage> CudaGaps(DeviceMemory& memory, const void* data, uint64_t slots, int size,
                            const device::Layout& layout, const device::FillRule& rule,
                            uint64_t seed) {
  uint64_t damage[2] = {0, ~uint64_t{0}};
  CF_ASSIGN_OR_RETURN(void* const scratch, memory.Scratch(sizeof(damage)));
  CF_RETURN_IF_ERROR(memory.CopyFromHost(scratch, damage, sizeof(damage)));
  device::Layout params_layout = layout;
  device::FillRule params_rule = rule;
  auto address = reinterpret_cast<cu::DevicePtr>(data);
  auto result = reinterpret_cast<cu::DevicePtr>(scratch);
  void* const params[] = {&address, &slots, &size, &params_layout, &params_rule, &seed, &result};
  OwnKernels& kernels = *memory.kernels();
  const int64_t blocks = std::min(static_cast<int64_t>(slots / kGapThreads) + 1,
                                  kGapBlocksPerMultiprocessor * kernels.multiprocessors());
  CF_RETURN_IF_ERROR(
      kernels.Launch("check_gaps", static_cast<unsigned>(blocks), kGapThreads, params));
  CF_RETURN_IF_ERROR(memory.CopyToHost(damage, scratch, sizeof(damage)));
  return DamageOf(damage[0], damage[1]);
}

}  // namespace cudaforge
