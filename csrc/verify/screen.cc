#include "verify/screen.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "verify/screen_passes.h"

namespace cudaforge {
namespace {

constexpr size_t kMostWorst = 64;
constexpr int kMostOfOneTile = 4;
constexpr int kLowestHalfOctave = -14;  // of float16's normal numbers; other dtypes' are below all
                                        // bands

using device::ElementKind;
static_assert(device::kBands == kScreenBands);
static_assert(static_cast<int>(ElementKind::kFloat32) == static_cast<int>(DType::kFloat32));
static_assert(static_cast<int>(ElementKind::kFloat16) == static_cast<int>(DType::kFloat16));
static_assert(static_cast<int>(ElementKind::kBFloat16) == static_cast<int>(DType::kBFloat16));
static_assert(static_cast<int>(ElementKind::kFloat64) == static_cast<int>(DType::kFloat64));
static_assert(static_cast<int>(ElementKind::kInt64) == static_cast<int>(DType::kInt64));
static_assert(static_cast<int>(ElementKind::kInt32) == static_cast<int>(DType::kInt32));
static_assert(static_cast<int>(ElementKind::kBool) == static_cast<int>(DType::kBool));

Worst WorstOf(const device::Pick& pick, int band, const WalkOrder& order) {
  Worst worst;
  worst.index = order.RowMajorIndex(pick.number);
  worst.aten = pick.aten;
  worst.candidate = pick.candidate;
  if (band == device::kSpecialBand) {
    worst.error = worst.relative = std::numeric_limits<double>::infinity();
  } else {
    worst.error = std::fabs(pick.candidate - pick.aten);
    worst.relative = pick.error;
  }
  return worst;
}

// The largest of each band, then the next of each band, until there are enough.
std::vector<Worst> ChooseWorst(const std::vector<device::BandSums>& bands, const WalkOrder& order) {
  std::vector<Worst> worst;
  std::map<uint32_t, int> of_tile;
  for (int rank = 0; rank < device::kPicksPerBand; ++rank) {
    for (int b = device::kBands; b-- > 0 && worst.size() < kMostWorst;) {
      const device::Pick& pick = bands[static_cast<size_t>(b)].picks[rank];
      // At most a few of one tile, except a band's largest error.
      if (pick.error == 0 || (of_tile[pick.tile] >= kMostOfOneTile && rank > 0)) continue;
      ++of_tile[pick.tile];
      worst.push_back(WorstOf(pick, b, order));
    }
  }
  std::stable_sort(worst.begin(), worst.end(),
                   [](const Worst& a, const Worst& b) { return a.relative > b.relative; });
  return worst;
}

int64_t FirstIndex(int64_t count, uint64_t number, const WalkOrder& order) {
  return count == 0 ? -1 : order.RowMajorIndex(number);
}

}  // namespace

int ScreenBand(DType dtype, double aten) {
  if (aten == 0) return 0;
  const int lowest = dtype == DType::kFloat16 ? kLowestHalfOctave : int{device::kLowestOctave};
  const int octave = std::clamp(std::ilogb(aten), lowest, int{device::kHighestOctave});
  return octave - device::kLowestOctave + 1;
}

Result<ScreenResult> Screen(DeviceMemory& memory, const ScreenRequest& request) {
  ScreenResult result;
  result.elements = request.spec.numel();
  if (result.elements == 0) return result;
  CF_ASSIGN_OR_RETURN(const WalkOrder order, WalkOrder::Of(request.spec));
  device::ScreenArgs args;
  args.aten = request.aten;
  args.candidate = request.candidate;
  args.n = static_cast<uint64_t>(result.elements);
  args.tile_size = device::TileSize(args.n);
  args.tiles = (args.n + args.tile_size - 1) / args.tile_size;
  args.layout = order.layout();
  args.kind = static_cast<ElementKind>(request.spec.dtype);
  args.bitwise = request.match == Match::kBitwise || !IsFloating(request.spec.dtype) ? 1 : 0;
  ScreenPass pass;
  if (memory.kernels() == nullptr) {
    pass = CpuScreenPass(args);
  } else {
    CF_ASSIGN_OR_RETURN(pass, CudaScreenPass(memory, args));
  }
  const device::Totals& totals = pass.totals;
  result.unequal = static_cast<int64_t>(totals.unequal);
  result.first_unequal = FirstIndex(result.unequal, totals.first_unequal, order);
  result.mask_unequal = static_cast<int64_t>(totals.mask_unequal);
  result.first_mask_unequal = FirstIndex(result.mask_unequal, totals.first_mask_unequal, order);
  result.specials = static_cast<int64_t>(totals.specials);
  for (size_t b = 0; b < result.bands.size(); ++b) {
    const device::BandSums& band = pass.bands[b];
    result.bands[b] = {static_cast<int64_t>(band.count), band.squares, band.picks[0].error};
  }
  BandErrors& special = result.bands[device::kSpecialBand];
  if (special.largest > 0) special.largest = std::numeric_limits<double>::infinity();
  result.worst = ChooseWorst(pass.bands, order);
  if (!request.gaps.has_value() || !order.nested()) return result;
  result.gaps_checked = true;
  if (args.layout.IsDense()) return result;
  const auto size = static_cast<int>(DTypeSize(request.spec.dtype));
  const auto slots = static_cast<uint64_t>(request.spec.StorageBytes() / size);
  const device::FillRule rule = RuleOf(request.gaps->pattern, request.gaps->dtype);
  const uint64_t seed = request.gaps->seed;
  if (memory.kernels() == nullptr) {
    result.gaps = CpuGaps(request.candidate, slots, size, args.layout, rule, seed);
  } else {
    CF_ASSIGN_OR_RETURN(result.gaps,
                        CudaGaps(memory, request.candidate, slots, size, args.layout, rule, seed));
  }
  return result;
}

}  // namespace cudaforge
