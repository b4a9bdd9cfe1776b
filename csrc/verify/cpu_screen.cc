// The screen on the CPU: see verify/screen.h.
#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "verify/screen_passes.h"

namespace cudaforge {
namespace {

using device::Constant;
using device::Element;
using device::ElementKind;

constexpr int64_t kTilesGrain = 8;
constexpr int64_t kSlotsGrain = 1 << 16;

// Offsets of consecutive elements from `begin`.
class Steps {
 public:
  Steps(const device::Layout& layout, uint64_t begin) : layout_(layout) {
    for (int d = layout.dims; d-- > 0;) {
      position_[d] = begin % layout.sizes[d];
      begin /= layout.sizes[d];
      offset_ += position_[d] * layout.strides[d];
    }
  }
  uint64_t offset() const { return offset_; }
  // The number of elements left in the last dimension.
  uint64_t run() const {
    return layout_.dims == 0 ? 1 : layout_.sizes[layout_.dims - 1] - position_[layout_.dims - 1];
  }
  uint64_t stride() const { return layout_.dims == 0 ? 1 : layout_.strides[layout_.dims - 1]; }
  // REQUIRES: steps <= run().
  void Advance(uint64_t steps) {
    int d = layout_.dims - 1;
    if (d < 0) return;
    position_[d] += steps;
    offset_ += steps * layout_.strides[d];
    for (; d > 0 && position_[d] == layout_.sizes[d]; --d) {
      offset_ += layout_.strides[d - 1] - layout_.sizes[d] * layout_.strides[d];
      position_[d] = 0;
      ++position_[d - 1];
    }
  }

 private:
  const device::Layout& layout_;
  uint64_t position_[device::kMostDims] = {};
  uint64_t offset_ = 0;
};

struct TileSums {
  uint64_t keys[device::kBands] = {};
  double squares[device::kBands] = {};
  int64_t counts[device::kBands] = {};
};

// Counts ATen's elements. Floats are counted by exponent, which is cheaper than by band.
template <ElementKind kKind, bool kFloating = kKind <= ElementKind::kFloat64>
class Histogram {
 public:
  using Bits = typename Element<kKind>::Bits;
  void Add(Bits bits) {
    ++counts_[static_cast<size_t>(Element<kKind>::Exponent(bits))];
    zeros_ += Element<kKind>::IsZero(bits) ? 1 : 0;
  }
  void AddTo(TileSums& sums, device::Totals& totals) const {
    for (int e = 0; e < Element<kKind>::Exponents() - 1; ++e) {
      sums.counts[device::BandOfOctave(Element<kKind>::OctaveOfExponent(e))] += counts_[e];
    }
    sums.counts[0] += zeros_;
    sums.counts[device::BandOfOctave(Element<kKind>::OctaveOfExponent(0))] -= zeros_;
    const uint32_t specials = counts_[Element<kKind>::Exponents() - 1];
    sums.counts[device::kSpecialBand] += specials;
    totals.specials += specials;
  }

 private:
  uint32_t counts_[Element<kKind>::Exponents()] = {};
  uint32_t zeros_ = 0;
};

template <ElementKind kKind>
class Histogram<kKind, false> {
 public:
  using Bits = typename Element<kKind>::Bits;
  void Add(Bits bits) { ++counts_[device::Look<kKind>(bits, bits, true).band]; }
  void AddTo(TileSums& sums, device::Totals&) const {
    for (int b = 0; b < device::kBands; ++b) sums.counts[b] += counts_[b];
  }

 private:
  uint32_t counts_[device::kBands] = {};
};

template <ElementKind kKind>
class CpuTile {
 public:
  using Bits = typename Element<kKind>::Bits;
  CpuTile(const device::ScreenArgs& args, uint64_t tile, device::Totals& totals)
      : args_(args), tile_(tile), begin_(tile * args.tile_size), totals_(totals) {}

  void Screen() {
    const uint64_t end = std::min(begin_ + args_.tile_size, args_.n);
    Steps steps(args_.layout, begin_);
    for (uint64_t number = begin_; number < end;) {
      const uint64_t count = std::min({steps.run(), end - number, uint64_t{kBlock}});
      const uint64_t offset = steps.offset() * sizeof(Bits);
      const char* const aten = static_cast<const char*>(args_.aten) + offset;
      const char* const candidate = static_cast<const char*>(args_.candidate) + offset;
      if (steps.stride() == 1) {
        Block(number, aten, candidate, sizeof(Bits), count);
      } else {
        Block(number, aten, candidate, steps.stride() * sizeof(Bits), count);
      }
      steps.Advance(count);
      number += count;
    }
    histogram_.AddTo(sums_, totals_);
    for (uint64_t b = 0; b < device::kBands; ++b) {
      const uint64_t at = b * args_.tiles + tile_;
      args_.keys[at] = sums_.keys[b];
      args_.squares[at] = static_cast<float>(sums_.squares[b]);
      args_.counts[at] = static_cast<uint32_t>(sums_.counts[b]);
    }
  }

 private:
  static constexpr uint32_t kBlock = 1024;

  static Bits Load(const char* from) {
    Bits bits;
    std::memcpy(&bits, from, sizeof(Bits));
    return bits;
  }

  // Processes `count` elements, `step` bytes apart, from element `number`. First collects those
  // with different bits, without a branch.
  [[gnu::always_inline]] void Block(uint64_t number, const char* aten, const char* candidate,
                                    uint64_t step, uint64_t count) {
    uint32_t unlike[kBlock];
    size_t found = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const Bits bits = Load(aten + i * step);
      histogram_.Add(bits);
      unlike[found] = i;
      found += bits != Load(candidate + i * step) ? 1 : 0;
    }
    for (size_t k = 0; k < found; ++k) {
      const uint32_t i = unlike[k];
      Add(number + i, Load(aten + i * step), Load(candidate + i * step));
    }
  }

  void Add(uint64_t number, Bits aten, Bits candidate) {
    const device::Seen seen = device::Look<kKind>(aten, candidate, args_.bitwise != 0);
    if (seen.band == device::kSpecialBand && !seen.special) {
      --sums_.counts[device::Look<kKind>(aten, aten, true).band];
      ++sums_.counts[device::kSpecialBand];
    }
    if (seen.error == 0) return;
    sums_.squares[seen.band] += static_cast<double>(seen.error) * seen.error;
    uint64_t& key = sums_.keys[seen.band];
    key = std::max(key, device::KeyOf(seen.error, static_cast<uint32_t>(number - begin_)));
    if (!seen.unequal) return;
    if (totals_.unequal++ == 0) totals_.first_unequal = number;
    if (seen.mask_unequal && totals_.mask_unequal++ == 0) totals_.first_mask_unequal = number;
  }

  const device::ScreenArgs& args_;
  const uint64_t tile_;
  const uint64_t begin_;
  device::Totals& totals_;
  TileSums sums_;
  Histogram<kKind> histogram_;
};

struct TileBody {
  const device::ScreenArgs& args;
  uint64_t tile;
  device::Totals& totals;

  template <ElementKind kKind>
  void operator()(Constant<ElementKind, kKind>) const {
    CpuTile<kKind>(args, tile, totals).Screen();
  }
};

struct PickValues {
  const device::ScreenArgs& args;
  device::Pick& pick;

  template <ElementKind kKind>
  void operator()(Constant<ElementKind, kKind>) const {
    using Bits = typename Element<kKind>::Bits;
    const uint64_t offset = args.layout.OffsetOf(pick.number) * sizeof(Bits);
    Bits bits;
    std::memcpy(&bits, static_cast<const char*>(args.aten) + offset, sizeof(Bits));
    pick.aten = device::ValueOf<kKind>(bits);
    std::memcpy(&bits, static_cast<const char*>(args.candidate) + offset, sizeof(Bits));
    pick.candidate = device::ValueOf<kKind>(bits);
  }
};

// Merges the tiles' results for band `b`.
device::BandSums MergeBand(const device::ScreenArgs& args, uint64_t b) {
  device::BandSums band;
  std::vector<uint64_t> ranks;
  for (uint64_t t = 0; t < args.tiles; ++t) {
    const uint64_t at = b * args.tiles + t;
    band.count += args.counts[at];
    band.squares += static_cast<double>(args.squares[at]);
    if (args.keys[at] == 0) continue;
    ranks.push_back(device::KeyOf(device::ErrorOf(args.keys[at]), static_cast<uint32_t>(t)));
  }
  if (b == device::kSpecialBand) band.squares = 0;
  const auto picks = std::min<std::ptrdiff_t>(device::kPicksPerBand, std::ssize(ranks));
  std::partial_sort(ranks.begin(), ranks.begin() + picks, ranks.end(), std::greater<>());
  for (std::ptrdiff_t p = 0; p < picks; ++p) {
    const uint64_t rank = ranks[static_cast<size_t>(p)];
    device::Pick& pick = band.picks[p];
    pick.tile = device::PlaceOf(rank);
    pick.error = device::ErrorOf(rank);
    pick.number =
        pick.tile * args.tile_size + device::PlaceOf(args.keys[b * args.tiles + pick.tile]);
    device::WithElementKind(args.kind, PickValues{args, pick});
  }
  return band;
}

}  // namespace

ScreenPass CpuScreenPass(device::ScreenArgs args) {
  const auto entries = static_cast<size_t>(args.tiles * device::kBands);
  std::vector<uint64_t> keys(entries);
  std::vector<float> squares(entries);
  std::vector<uint32_t> counts(entries);
  args.keys = keys.data();
  args.squares = squares.data();
  args.counts = counts.data();
  const auto tiles = static_cast<int64_t>(args.tiles);
  ScreenPass pass;
  std::vector<device::Totals> parts(static_cast<size_t>(ChunkCount(tiles, kTilesGrain)));
  ParallelChunks(tiles, kTilesGrain, [&](int64_t chunk, int64_t begin, int64_t end) {
    device::Totals totals;
    for (int64_t t = begin; t < end; ++t) {
      device::WithElementKind(args.kind, TileBody{args, static_cast<uint64_t>(t), totals});
    }
    parts[static_cast<size_t>(chunk)] = totals;
  });
  for (const device::Totals& part : parts) {
    pass.totals.unequal += part.unequal;
    pass.totals.first_unequal = std::min(pass.totals.first_unequal, part.first_unequal);
    pass.totals.mask_unequal += part.mask_unequal;
    pass.totals.first_mask_unequal =
        std::min(pass.totals.first_mask_unequal, part.first_mask_unequal);
    pass.totals.specials += part.specials;
  }
  pass.bands = MergeTiles(args);
  return pass;
}

std::vector<device::BandSums> MergeTiles(const device::ScreenArgs& args) {
  std::vector<device::BandSums> bands(device::kBands);
  for (size_t b = 0; b < bands.size(); ++b) bands[b] = MergeBand(args, b);
  return bands;
}

FillDamage CpuGaps(const void* data, uint64_t slots, int size, const device::Layout& layout,
                   const device::FillRule& rule, uint64_t seed) {
  const auto* const bytes = static_cast<const unsigned char*>(data);
  const auto all = static_cast<int64_t>(slots);
  std::vector<device::FillDifference> parts(static_cast<size_t>(ChunkCount(all, kSlotsGrain)));
  ParallelChunks(all, kSlotsGrain, [&](int64_t chunk, int64_t begin, int64_t end) {
    device::FillDifference found;
    for (auto slot = static_cast<uint64_t>(begin); slot < static_cast<uint64_t>(end); ++slot) {
      if (layout.Covers(slot)) continue;
      found.CompareSlot(bytes, slot * static_cast<uint64_t>(size), size, rule, seed);
    }
    parts[static_cast<size_t>(chunk)] = found;
  });
  device::FillDifference all_found;
  for (const device::FillDifference& part : parts) {
    all_found.changed += part.changed;
    all_found.first = std::min(all_found.first, part.first);
  }
  return DamageOf(all_found.changed, all_found.first);
}

}  // namespace cudaforge
