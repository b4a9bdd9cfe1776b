#include "worker/split.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/random.h"

namespace cudaforge {
namespace {

constexpr std::pair<RangeSplit, std::string_view> kSplitNames[] = {{RangeSplit::kServed, "served"},
                                                                   {RangeSplit::kWhole, "whole"},
                                                                   {RangeSplit::kItems, "items"},
                                                                   {RangeSplit::kRandom, "random"},
                                                                   {RangeSplit::kApart, "apart"}};
constexpr int64_t kMostItems = int64_t{64} << 10;
constexpr int64_t kSingles = 4096;
constexpr int kPartsPerThread = 16;
constexpr int kMachines[] = {2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128};
constexpr int64_t kUnits[] = {1, 1, 2, 4, 8, 16, 64};

// The parts between `cuts`, which are sorted; ignores those outside of (0, range).
std::vector<RangePart> Between(std::vector<int64_t> cuts, int64_t range) {
  std::sort(cuts.begin(), cuts.end());
  std::vector<RangePart> parts;
  int64_t begin = 0;
  for (const int64_t cut : cuts) {
    if (cut <= begin || cut >= range) continue;
    parts.push_back({begin, cut});
    begin = cut;
  }
  parts.push_back({begin, range});
  return parts;
}

int64_t Below(SplitMix& random, int64_t n) {
  return static_cast<int64_t>(random.Below(static_cast<uint64_t>(n)));
}

std::vector<RangePart> Served(int64_t range, int64_t grain, int threads) {
  grain = std::max(grain, int64_t{1});
  const int64_t count = std::min<int64_t>(std::max(threads, 1), (range - 1) / grain + 1);
  const int64_t chunk = (range - 1) / count + 1;
  std::vector<int64_t> cuts;
  for (int64_t i = 1; i < count; ++i) cuts.push_back(i * chunk);
  return Between(std::move(cuts), range);
}

std::vector<RangePart> Items(int64_t range, SplitMix& random) {
  std::vector<int64_t> cuts;
  if (range <= kMostItems) {
    for (int64_t i = 1; i < range; ++i) cuts.push_back(i);
    return Between(std::move(cuts), range);
  }
  cuts = {1, range - 1};
  for (int64_t i = 0; i < kSingles; ++i) {
    const int64_t item = Below(random, range - 1);
    cuts.push_back(item);
    cuts.push_back(item + 1);
  }
  // The rest in steps of odd sizes.
  const int64_t step = (range / (kMostItems / 4)) | 1;
  for (int64_t at = step; at < range; at += step + 2 * Below(random, step)) cuts.push_back(at);
  return Between(std::move(cuts), range);
}

// Begins and lengths that reveal a kernel's assumptions: odd items, any items, multiples of vector
// and tile lengths, and the equal parts for another number of threads.
std::vector<RangePart> Random(int64_t range, int64_t grain, int threads, SplitMix& random) {
  const int64_t kind = Below(random, 9);
  if (kind == 0) return Served(range, 1, kMachines[random.Below(std::size(kMachines))]);
  if (kind == 1) return Served(range, grain, kMachines[random.Below(std::size(kMachines))]);
  int64_t unit = kUnits[kind - 2];
  while (unit > 1 && 2 * unit > range) unit /= 2;
  const int64_t odd = kind == 2 ? 1 : 0;
  std::vector<int64_t> cuts;
  const int64_t most = int64_t{kPartsPerThread} * std::max(threads, 1) - 1;
  const int64_t wanted = 1 + Below(random, most);
  for (int64_t i = 0; i < wanted; ++i) {
    cuts.push_back((unit * Below(random, (range - 1) / unit + 1)) | odd);
  }
  return Between(std::move(cuts), range);
}

std::vector<RangePart> Apart(int64_t range, int most, SplitMix& random) {
  std::vector<int64_t> cuts;
  for (int64_t i = 1; i < std::min<int64_t>(range, most); ++i) {
    cuts.push_back(range <= most ? i : Below(random, range));
  }
  return Between(std::move(cuts), range);
}

}  // namespace

std::string_view SplitName(RangeSplit split) {
  for (const auto& [value, name] : kSplitNames) {
    if (value == split) return name;
  }
  return "served";
}

Result<RangeSplit> ParseSplit(std::string_view name) {
  for (const auto& [value, known] : kSplitNames) {
    if (known == name) return value;
  }
  return Status::InvalidArgument("no split of ranges: \"" + std::string(name.substr(0, 40)) + "\"");
}

std::vector<RangePart> CutRange(RangeSplit split, int64_t range, int64_t grain, int threads,
                                uint64_t seed) {
  if (range <= 0) return {};
  SplitMix random(seed);
  if (split == RangeSplit::kServed) return Served(range, grain, threads);
  if (split == RangeSplit::kWhole) return {{0, range}};
  std::vector<RangePart> parts = split == RangeSplit::kItems ? Items(range, random)
                                 : split == RangeSplit::kApart
                                     ? Apart(range, threads, random)
                                     : Random(range, grain, threads, random);
  for (size_t i = parts.size(); i > 1; --i) {
    std::swap(parts[i - 1], parts[random.Below(i)]);
  }
  return parts;
}

}  // namespace cudaforge
