#include "generators/tiles/units.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/text.h"

namespace cudaforge::tiles {
namespace {

constexpr int64_t kMostParts = 64;
constexpr int64_t kLeastStepsOfPart = 4;
// Of a unit of work besides its steps, in steps: storing a tile, writing and reading a part.
constexpr int64_t kStepsOfStoring = 2, kStepsOfCombining = 2;
// Below this, the whole product takes as long as its launches: microseconds.
constexpr int64_t kLeastWork = int64_t{1} << 24;  // of all products
constexpr int64_t kMostSide = int64_t{1} << 24;
constexpr int64_t kMostTiles = int64_t{1} << 24;

}  // namespace

Tiles::Tiles(const Contraction& c, const TileShape& tile)
    : shape(tile),
      m(CeilDiv(c.m, tile.m)),
      n(CeilDiv(c.n, tile.n)),
      steps(CeilDiv(c.k, tile.k)),
      matrices_a(c.a.batch == 0 ? 1 : c.batch),
      matrices_b(c.b.batch == 0 ? 1 : c.batch),
      batch(c.batch),
      all(c.batch * m * n) {}

int64_t Tiles::PartialBytes(int64_t parts, int64_t multiprocessors) const {
  const int64_t units = (all - whole(parts, multiprocessors)) * parts;
  return std::max<int64_t>(1, units) * shape.m * shape.n * int64_t{sizeof(float)};
}

int64_t Tiles::Time(int64_t parts, int64_t multiprocessors) const {
  const int64_t whole_tiles = whole(parts, multiprocessors);
  const int64_t waves = CeilDiv(whole_tiles, multiprocessors);
  const int64_t waves_of_parts = CeilDiv((all - whole_tiles) * parts, multiprocessors);
  return waves * (steps + kStepsOfStoring) +
         waves_of_parts * (CeilDiv(steps, parts) + kStepsOfStoring + kStepsOfCombining);
}

std::vector<int64_t> Tiles::PartCounts(int64_t multiprocessors, size_t most) const {
  std::vector<int64_t> counts;
  const int64_t largest = std::clamp<int64_t>(steps / kLeastStepsOfPart, 1, kMostParts);
  for (int64_t parts = 1; parts <= largest; ++parts) counts.push_back(parts);
  const auto time = [&](int64_t parts) { return Time(parts, multiprocessors); };
  std::ranges::stable_sort(counts, {}, time);
  const int64_t worth = time(counts.front()) + time(counts.front()) / 10;
  while (counts.size() > most || time(counts.back()) > worth) counts.pop_back();
  if (std::ranges::count(counts, 1) == 0) counts.push_back(1);
  return counts;
}

std::string ConstantText(const char* name, int64_t value) {
  return Cat("enum : int { ", name, " = ", value, " };\n");
}

std::string PipelineConstants(const Contraction& c, const Tiles& tiles, int64_t parts,
                              int64_t multiprocessors, const PipelineShape& pipeline) {
  const std::pair<const char*, int64_t> constants[] = {
      {"kM", c.m},
      {"kN", c.n},
      {"kK", c.k},
      {"kBatch", tiles.batch},
      {"kABatches", tiles.matrices_a},
      {"kBBatches", tiles.matrices_b},
      {"kTileM", tiles.shape.m},
      {"kTileN", tiles.shape.n},
      {"kBlockK", tiles.shape.k},
      {"kWhole", tiles.whole(parts, multiprocessors)},
      {"kParts", parts},
      {"kStages", pipeline.stages},
      {"kStageBytes", pipeline.stage_bytes},
      {"kGroups", pipeline.groups}};
  std::string text;
  for (const auto& [name, value] : constants) text += ConstantText(name, value);
  return text;
}

std::string StrideConstants(const Operand& a, const Operand& b) {
  return Cat("enum : long long { kABatch = ", a.batch, ", kBBatch = ", b.batch, " };\n") +
         ConstantText("kARow", a.row) + ConstantText("kAStep", a.step) +
         ConstantText("kBRow", b.row) + ConstantText("kBStep", b.step);
}

LaunchArg ArgAt(LaunchArg::Kind kind, int index) {
  LaunchArg arg;
  arg.kind = kind;
  arg.index = index;
  return arg;
}

Status CheckSizes(const Contraction& c, const TileShape& shape, int64_t least_k) {
  const int64_t most = std::max({c.batch, c.m, c.n, c.k});
  if (HasFewRows(c) || c.k < least_k || most > kMostSide ||
      c.m * c.n < kLeastWork / c.k / c.batch) {
    return Status::Unsupported(
        Cat("no product kernel: needs 64 to 2^24 rows and columns, sums of at least ", least_k,
            " terms, and 2^24 multiplications"));
  }
  const Tiles tiles(c, shape);
  if (c.batch * std::max(tiles.m * shape.m, tiles.n * shape.n) >
          std::numeric_limits<int32_t>::max() / 2 ||
      tiles.m * tiles.n > kMostTiles / c.batch) {
    return Status::Unsupported("no product kernel: more than 2^24 tiles");
  }
  return Status::Ok();
}

}  // namespace cudaforge::tiles
