#include "generators/tiles/product_half_sm90.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/text.h"
#include "generators/rows/cuda/prelude.h"
#include "generators/tiles/combine_half.h"
#include "generators/tiles/device_texts.h"
#include "generators/tiles/epilogue.h"
#include "generators/tiles/operand_maps.h"
#include "generators/tiles/units.h"
#include "generators/tiles/wgmma.h"

namespace cudaforge::tiles {
namespace {

constexpr int64_t kHalf = 2;  // bytes
constexpr int64_t kSharedBytes = int64_t{200} << 10;

// Columns of a tile, and the warpgroups that share it. A thread holds n / groups sums, at most 128.
struct Shape {
  int64_t n, groups;
  double cost;  // of a product, over the others'
};
constexpr Shape kShapes[] = {{256, 2, 1.0}, {192, 2, 1.0}, {128, 1, 1.0}, {64, 1, 1.25}};

int64_t Together(const Contraction& c) { return c.is_together() ? c.products() : 1; }

// Of the result.
TileShape ShapeOf(const Contraction& c, int64_t n) {
  return {.m = 128, .n = n / Together(c), .k = 64};
}

// Products apart are as the matrices of a batch.
Tiles TilesOf(Contraction c, int64_t n) {
  if (c.is_apart()) c.batch = c.products();
  return Tiles(c, ShapeOf(c, n));
}

PipelineShape PipelineOf(const TileShape& shape, const HalfSchedule& schedule) {
  const int64_t stage_bytes = (shape.m + schedule.n) * shape.k * kHalf;
  return {
      .stages = kSharedBytes / stage_bytes, .stage_bytes = stage_bytes, .groups = schedule.groups};
}

// Cycles of all units, as measured on an H200: a step of 64 by 128 rows takes four for each column,
// and tiles that two warpgroups share are stored while neither multiplies.
double CyclesOf(const Tiles& tiles, const Shape& shape, int64_t parts, int64_t multiprocessors) {
  const auto waves = [&](int64_t units) {
    return static_cast<double>(CeilDiv(units, multiprocessors));
  };
  const auto unit = [&](int64_t steps) {
    constexpr double kStore = 6;  // a column
    return static_cast<double>(shape.n) *
           (4 * shape.cost * static_cast<double>(steps) + (shape.groups == 1 ? 0 : kStore));
  };
  const int64_t whole = tiles.whole(parts, multiprocessors);
  const double cycles = waves(whole) * unit(tiles.steps);
  if (parts == 1) return cycles;
  constexpr double kCombine = 6000, kBytesOfCycle = 1500;  // written and read
  return cycles + waves((tiles.all - whole) * parts) * unit(CeilDiv(tiles.steps, parts)) +
         kCombine +
         2 * static_cast<double>(tiles.PartialBytes(parts, multiprocessors)) / kBytesOfCycle;
}

std::string ProductKernel(const EpilogueText& epilogue, int64_t products) {
  const std::string map = "const __grid_constant__ CfTensorMap ";
  std::string before = map + "a, ", maps;
  for (int64_t p = 0; p < products; ++p) {
    before += Cat(map, "b", p, ", ");
    maps += Cat(p == 0 ? "&b" : ", &b", p);
  }
  return epilogue.Kernel("product", "kPipelineThreads, 1", before + "float* __restrict__ partial",
                         Cat("Product(epilogue, a, Maps{{", maps, "}}, partial);"));
}

}  // namespace

Status CanMakeHalf(const Contraction& c) {
  constexpr int64_t kLeastK = 32;
  CF_RETURN_IF_ERROR(CheckSizes(c, ShapeOf(c, 128), kLeastK));
  if (c.is_together() && (c.n % 8 != 0 || !WriteEpilogueText(c).half_rows))
    return Status::Unsupported(
        "no product kernel: results of two products that are no rows of halves");
  CF_RETURN_IF_ERROR(CheckMap(c.a, "an operand"));
  return CheckMap(c.b, "an operand");
}

std::vector<HalfSchedule> HalfSchedules(const Contraction& c, int64_t multiprocessors) {
  struct Guess {
    HalfSchedule schedule;
    double cycles;
  };
  std::vector<Guess> guesses;
  for (const Shape& shape : kShapes) {
    constexpr int64_t kColumnsOfChunk = 64;  // of product_half_sm90.cuh
    const Tiles tiles = TilesOf(c, shape.n);
    if (tiles.shape.n % kColumnsOfChunk != 0) continue;
    Guess best = {{shape.n, shape.groups, 1}, CyclesOf(tiles, shape, 1, multiprocessors)};
    std::vector<int64_t> counts;
    if (!c.is_together()) counts = tiles.PartCounts(multiprocessors, 3);
    for (int64_t parts : counts) {
      const double cycles = CyclesOf(tiles, shape, parts, multiprocessors);
      if (cycles < best.cycles) best = {{shape.n, shape.groups, parts}, cycles};
    }
    guesses.push_back(best);
  }
  std::ranges::stable_sort(guesses, {}, &Guess::cycles);
  std::vector<HalfSchedule> schedules;
  for (const Guess& guess : guesses) {
    constexpr double kWorthTrying = 1.35;
    if (guess.cycles < guesses[0].cycles * kWorthTrying) schedules.push_back(guess.schedule);
  }
  return schedules;
}

Candidate WriteHalf(const Contraction& c, const HalfSchedule& schedule, int64_t multiprocessors) {
  const Tiles tiles = TilesOf(c, schedule.n);
  const TileShape& shape = tiles.shape;
  const int64_t parts = schedule.parts;
  const PipelineShape pipeline = PipelineOf(shape, schedule);
  const int64_t in_parts = tiles.all - tiles.whole(parts, multiprocessors);
  const EpilogueText epilogue = WriteEpilogueText(c);
  const MmaShape mma = {.n = static_cast<int>(schedule.n),
                        .dtype = c.a.dtype,
                        .a_rows_hold_k = c.a.rows_hold_k(),
                        .b_rows_hold_k = c.b.rows_hold_k()};

  Candidate candidate;
  candidate.author = "generator:product";
  candidate.params = {{"n", schedule.n}, {"groups", schedule.groups}, {"parts", parts}};
  candidate.source.language = Language::kCuda;
  candidate.source.code =
      PipelineConstants(c, tiles, parts, multiprocessors, pipeline) +
      ConstantText("kARowsHoldK", c.a.rows_hold_k()) +
      ConstantText("kBRowsHoldK", c.b.rows_hold_k()) + ConstantText("kMaps", c.products()) +
      ConstantText("kTogether", Together(c)) + std::string(rows::CudaPrelude()) +
      DeviceText({"device/barrier.cuh", "device/matrices.cuh", "device/tensor_copy.cuh",
                  "device/wgmma.cuh", "tiles/warps_sm90.cuh", "tiles/units.cuh",
                  "tiles/pipeline_sm90.cuh"}) +
      MmaText(mma) + epilogue.text +
      DeviceText({"tiles/combine_half.cuh", "tiles/product_half_sm90.cuh"}) +
      ProductKernel(epilogue, c.products());

  LaunchPlan& plan = candidate.plan;
  plan.scratch_bytes = {tiles.PartialBytes(parts, multiprocessors)};
  using Kind = LaunchArg::Kind;
  plan.tensor_maps = {MapOf(c.a.input, c.a, c.m, c.k, c.batch, shape.m),
                      MapOf(c.b.input, c.b, c.n, c.k, c.batch, shape.n)};
  for (int input : c.siblings)
    plan.tensor_maps.push_back(MapOf(input, c.b, c.n, c.k, c.batch, shape.n));
  std::vector<LaunchArg> before;
  for (size_t map = 0; map < plan.tensor_maps.size(); ++map)
    before.push_back(ArgAt(Kind::kTensorMap, static_cast<int>(map)));
  const LaunchArg partial = ArgAt(Kind::kScratch, 0);
  before.push_back(partial);
  Launch product;
  product.kernel = "product";
  product.args = epilogue.Args(std::move(before));
  product.grid[0] = std::min(tiles.units(parts, multiprocessors), multiprocessors);
  product.block[0] = 384;
  product.dynamic_shared_bytes = pipeline.shared_bytes();
  plan.launches = {std::move(product)};
  AddCombine(c, tiles, in_parts, epilogue, partial, candidate);
  return candidate;
}

}  // namespace cudaforge::tiles
