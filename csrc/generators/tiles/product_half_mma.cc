#include "generators/tiles/product_half_mma.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/text.h"
#include "generators/rows/cuda/prelude.h"
#include "generators/tiles/combine_half.h"
#include "generators/tiles/device_texts.h"
#include "generators/tiles/epilogue.h"
#include "generators/tiles/units.h"

namespace cudaforge::tiles {
namespace {

constexpr std::string_view kMmaTargets[] = {"cuda:sm_80", "cuda:sm_86", "cuda:sm_89",
                                            "cuda:sm_120"};
constexpr int64_t kLeastBlockBytes = int64_t{99} << 10, kLeastAllBytes = int64_t{100} << 10;
constexpr int64_t kBytes = 2;  // of a half

// Tiles by their columns. A thread holds 128 sums or, with 64 columns, 64.
struct MmaTile {
  int64_t n, threads, blocks;  // blocks of a multiprocessor: one stores while another multiplies
  double cost;                 // of a product, over the others': operands that are read more often
};
constexpr MmaTile kMmaTiles[] = {{256, 256, 1, 1.0}, {128, 128, 2, 1.0}, {64, 128, 2, 1.3}};

const MmaTile& TileOf(int64_t n) { return *std::ranges::find(kMmaTiles, n, &MmaTile::n); }
TileShape ShapeOfTile(int64_t n) { return {.m = 128, .n = n, .k = 32}; }

// Copies are ahead by up to five stages; more hide no more latency.
PipelineShape RingOf(const MmaTile& tile, const MmaDevice& device) {
  const TileShape shape = ShapeOfTile(tile.n);
  const int64_t stage_bytes = (shape.m + shape.n) * shape.k * kBytes;
  const int64_t most =
      std::min(device.block_bytes, device.all_bytes / tile.blocks - MmaDevice::kBlockReserve);
  return {.stages = std::clamp<int64_t>(most / stage_bytes, 2, 6), .stage_bytes = stage_bytes};
}

int64_t SlotsOf(const MmaTile& tile, const MmaDevice& device) {
  return device.multiprocessors * tile.blocks;
}

// Cycles of all units on an A100, by its rate: a step of 32 by 128 rows takes four for each column.
// Blocks of one multiprocessor take turns.
double CyclesOf(const Tiles& tiles, const MmaTile& tile, int64_t parts, const MmaDevice& device) {
  const auto cycles = [&](int64_t units, int64_t steps) {
    constexpr double kStore = 6;  // a column; hidden where another block multiplies
    return static_cast<double>(CeilDiv(units, device.multiprocessors) * tile.n) *
           (4 * tile.cost * static_cast<double>(steps) + (tile.blocks == 1 ? kStore : 0));
  };
  const int64_t slots = SlotsOf(tile, device), whole = tiles.whole(parts, slots);
  const double of_whole = cycles(whole, tiles.steps);
  if (whole == tiles.all) return of_whole;
  constexpr double kCombine = 6000, kBytesOfCycle = 1000;  // written and read
  return of_whole + cycles((tiles.all - whole) * parts, CeilDiv(tiles.steps, parts)) + kCombine +
         2 * static_cast<double>(tiles.PartialBytes(parts, slots)) / kBytesOfCycle;
}

// The largest copies that an operand allows: 16 bytes, 8, 4 or 2.
int64_t CopyBytes(const Operand& operand) {
  for (const int64_t bytes : {16, 8, 4}) {
    if (operand.lead() * kBytes % bytes == 0 && operand.batch * kBytes % bytes == 0 &&
        operand.alignment % bytes == 0)
      return bytes;
  }
  return kBytes;
}

std::string OperandConstants(const Contraction& c, const MmaTile& tile) {
  const std::pair<const char*, int64_t> constants[] = {
      {"kARowsHoldK", c.a.rows_hold_k()},
      {"kBRowsHoldK", c.b.rows_hold_k()},
      {"kALead", c.a.lead()},
      {"kBLead", c.b.lead()},
      {"kACopy", CopyBytes(c.a)},
      {"kBCopy", CopyBytes(c.b)},
      {"kIsBFloat16", c.a.dtype == DType::kBFloat16},
      {"kThreads", tile.threads},
      {"kBlocks", tile.blocks}};
  std::string text =
      Cat("enum : long long { kABatch = ", c.a.batch, ", kBBatch = ", c.b.batch, " };\n");
  for (const auto& [name, value] : constants) text += ConstantText(name, value);
  return text;
}

}  // namespace

MmaDevice::MmaDevice(const DeviceArch& arch)
    : multiprocessors(arch.multiprocessors.value_or(1)),
      block_bytes(arch.shared_bytes_per_block_optin.value_or(kLeastBlockBytes)),
      all_bytes(arch.shared_bytes_per_multiprocessor.value_or(kLeastAllBytes)) {}

bool IsMmaTarget(std::string_view target) {
  return std::ranges::find(kMmaTargets, target) != std::end(kMmaTargets);
}

Status CanMakeHalfMma(const Contraction& c) {
  if (c.products() > 1)
    return Status::NotFound("no product kernel: several products in half types on this GPU");
  constexpr int64_t kLeastK = 32;
  return CheckSizes(c, ShapeOfTile(64), kLeastK);
}

std::vector<MmaSchedule> HalfMmaSchedules(const Contraction& c, const MmaDevice& device) {
  struct Guess {
    MmaSchedule schedule;
    double cycles;
  };
  std::vector<Guess> guesses;
  for (const MmaTile& tile : kMmaTiles) {
    const Tiles tiles(c, ShapeOfTile(tile.n));
    Guess best = {{tile.n, 1}, CyclesOf(tiles, tile, 1, device)};
    for (int64_t parts : tiles.PartCounts(SlotsOf(tile, device), 3)) {
      const double cycles = CyclesOf(tiles, tile, parts, device);
      if (cycles < best.cycles) best = {{tile.n, parts}, cycles};
    }
    guesses.push_back(best);
  }
  std::ranges::stable_sort(guesses, {}, &Guess::cycles);
  std::vector<MmaSchedule> schedules;
  for (const Guess& guess : guesses) {
    constexpr double kWorthTrying = 1.5;
    if (guess.cycles < guesses[0].cycles * kWorthTrying) schedules.push_back(guess.schedule);
  }
  return schedules;
}

Candidate WriteHalfMma(const Contraction& c, const MmaSchedule& schedule, const MmaDevice& device) {
  const MmaTile& tile = TileOf(schedule.n);
  const Tiles tiles(c, ShapeOfTile(tile.n));
  const int64_t parts = schedule.parts, slots = SlotsOf(tile, device);
  const PipelineShape ring = RingOf(tile, device);
  const int64_t in_parts = tiles.all - tiles.whole(parts, slots);
  const EpilogueText epilogue = WriteEpilogueText(c);

  Candidate candidate;
  candidate.author = "generator:product";
  candidate.params = {{"mma", "sync"}, {"n", tile.n}, {"parts", parts}, {"stages", ring.stages}};
  candidate.source.language = Language::kCuda;
  std::string& code = candidate.source.code;
  code = PipelineConstants(c, tiles, parts, slots, ring) + OperandConstants(c, tile) +
         std::string(rows::CudaPrelude()) +
         DeviceText({"device/async_copy.cuh", "device/matrices.cuh", "device/mma.cuh",
                     "tiles/units.cuh", "tiles/mma_ring.cuh"}) +
         epilogue.text + DeviceText({"tiles/combine_half.cuh", "tiles/product_half_mma.cuh"}) +
         epilogue.Kernel("product", "kThreads, kBlocks",
                         "const unsigned short* __restrict__ a, "
                         "const unsigned short* __restrict__ b, float* __restrict__ partial",
                         "Product(epilogue, a, b, partial);");

  LaunchPlan& plan = candidate.plan;
  plan.scratch_bytes = {tiles.PartialBytes(parts, slots)};
  using Kind = LaunchArg::Kind;
  const LaunchArg partial = ArgAt(Kind::kScratch, 0);
  Launch product;
  product.kernel = "product";
  product.args =
      epilogue.Args({ArgAt(Kind::kInput, c.a.input), ArgAt(Kind::kInput, c.b.input), partial});
  product.grid[0] = std::min(tiles.units(parts, slots), slots);
  product.block[0] = tile.threads;
  product.dynamic_shared_bytes = ring.stages * ring.stage_bytes;
  plan.launches = {std::move(product)};
  AddCombine(c, tiles, in_parts, epilogue, partial, candidate);
  return candidate;
}

}  // namespace cudaforge::tiles
