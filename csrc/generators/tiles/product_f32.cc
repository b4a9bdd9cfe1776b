#include "generators/tiles/product_f32.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/text.h"
#include "generators/rows/cuda/prelude.h"
#include "generators/tiles/device_texts.h"
#include "generators/tiles/epilogue.h"
#include "generators/tiles/product_mma.h"
#include "generators/tiles/units.h"
#include "generators/tiles/wgmma.h"

namespace cudaforge::tiles {
namespace {

constexpr TileShape kShape = {.m = 128, .n = 128, .k = 64};
// As many stages as fit into a multiprocessor's shared memory, of h and l of both operands.
constexpr PipelineShape kPipeline = {.stages = 3,
                                     .stage_bytes = 2 * (kShape.m + kShape.n) * kShape.k * 2};
// A stage of mma.sync's ring has 32 of k.
constexpr int64_t kRingBytes = (kShape.m + kShape.n) * 32 * 2 * 2;

// What multiplies the tiles of halves.
struct Multiplier {
  PipelineShape pipeline = kPipeline;
  int64_t shared_bytes = kPipeline.shared_bytes();
  int64_t strips = 1;  // of 16 rows of a tile, of a warp
  const char* bounds = "kPipelineThreads, 1";
  int64_t threads = 384;
  std::string before, after;  // device code: before `split`, and Product
};

Multiplier Wgmma() {
  Multiplier by;
  by.before = DeviceText({"device/barrier.cuh", "device/bulk_copy.cuh", "device/wgmma.cuh",
                          "tiles/units.cuh", "tiles/pipeline_sm90.cuh"}) +
              MmaText({.n = static_cast<int>(kShape.n)});
  by.after = DeviceText({"tiles/product_f32.cuh", "tiles/product_f32_sm90.cuh"});
  return by;
}

Multiplier MmaSync(const MmaDevice& device) {
  Multiplier by;
  by.pipeline = {.stages = std::clamp<int64_t>(device.block_bytes / kRingBytes, 2, 5),
                 .stage_bytes = kRingBytes};
  by.shared_bytes = by.pipeline.stages * kRingBytes;
  by.strips = 4;
  by.bounds = "kThreads, 1";
  by.threads = 256;
  by.before =
      ConstantText("kThreads", by.threads) + DeviceText({"device/async_copy.cuh", "device/mma.cuh",
                                                         "tiles/units.cuh", "tiles/mma_ring.cuh"});
  by.after = DeviceText({"tiles/product_f32.cuh", "tiles/product_f32_mma.cuh"});
  return by;
}

constexpr int64_t kSplitRows = 32;  // of a block of `split`
constexpr int64_t kMagnitudesBytes = 12;
constexpr int64_t kFewestNonzero = 64;

int64_t RowsOfA(const Tiles& tiles) { return tiles.matrices_a * tiles.m * kShape.m; }
int64_t RowsOfB(const Tiles& tiles) { return tiles.matrices_b * tiles.n * kShape.n; }

// Pieces of each row that are split by blocks of their own, where there are few rows.
int64_t PiecesOfRows(const Tiles& tiles, int64_t multiprocessors) {
  const int64_t blocks = (RowsOfA(tiles) + RowsOfB(tiles)) / kSplitRows;
  constexpr int64_t kLeastStepsOfPiece = 32;
  return std::clamp<int64_t>(CeilDiv(2 * multiprocessors, blocks), 1,
                             std::max<int64_t>(1, tiles.steps / kLeastStepsOfPiece));
}

bool HasVectors(const Operand& operand, int64_t k) {
  return operand.step == 1 && k % 8 == 0 && operand.row % 4 == 0 && operand.batch % 4 == 0 &&
         operand.alignment % 16 == 0;
}

std::string SplitConstants(const Contraction& c, int64_t pieces) {
  const std::pair<const char*, int64_t> constants[] = {
      {"kARow", c.a.row},
      {"kAStep", c.a.step},
      {"kBRow", c.b.row},
      {"kBStep", c.b.step},
      {"kAVector", HasVectors(c.a, c.k)},
      {"kBVector", HasVectors(c.b, c.k)},
      {"kPieces", pieces},
      // Rows with fewer elements that are not zero are not split: float32's sums are as accurate.
      {"kFewest", kFewestNonzero}};
  std::string text =
      Cat("enum : long long { kABatch = ", c.a.batch, ", kBBatch = ", c.b.batch, " };\n");
  for (const auto& [name, value] : constants) text += ConstantText(name, value);
  return text;
}

// The kernels that call Product and Combine.
std::string F32Kernels(const EpilogueText& epilogue, const char* bounds, bool combines) {
  const std::string operands = "const float* __restrict__ a, const float* __restrict__ b, ";
  const std::string sums = "const float* __restrict__ scales, float* __restrict__ partial";
  std::string text = epilogue.Kernel(
      "product", bounds,
      operands +
          "const unsigned char* __restrict__ a_tiles, const unsigned char* __restrict__ b_tiles, " +
          sums,
      "Product(epilogue, a, b, a_tiles, b_tiles, scales, partial);");
  if (combines) {
    text += epilogue.Kernel("combine", "256", operands + sums,
                            "Combine(epilogue, a, b, scales, partial);");
  }
  return text;
}

Candidate WriteBy(const Multiplier& by, const Contraction& c, int64_t parts,
                  int64_t multiprocessors) {
  const Tiles tiles(c, kShape);
  const int64_t pieces = PiecesOfRows(tiles, multiprocessors);
  const int64_t in_parts = tiles.all - tiles.whole(parts, multiprocessors);
  const int64_t all_rows = RowsOfA(tiles) + RowsOfB(tiles);
  const EpilogueText epilogue = WriteEpilogueText(c);

  Candidate candidate;
  candidate.author = "generator:product";
  candidate.params = {{"parts", parts}};
  candidate.source.language = Language::kCuda;
  candidate.source.code = "#include <cuda_fp16.h>\n" +
                          PipelineConstants(c, tiles, parts, multiprocessors, by.pipeline) +
                          SplitConstants(c, pieces) + ConstantText("kStrips", by.strips) +
                          std::string(rows::CudaPrelude()) + by.before +
                          DeviceText({"device/split.cuh", "tiles/split_rows.cuh"}) + epilogue.text +
                          by.after + F32Kernels(epilogue, by.bounds, in_parts > 0);

  const int64_t bytes_of_row = tiles.steps * kShape.k * 2 * 2;  // two halves an element
  candidate.plan.scratch_bytes = {RowsOfA(tiles) * bytes_of_row, RowsOfB(tiles) * bytes_of_row,
                                  all_rows * int64_t{sizeof(float)},
                                  pieces > 1 ? all_rows * pieces * kMagnitudesBytes : 4,
                                  tiles.PartialBytes(parts, multiprocessors)};
  using Kind = LaunchArg::Kind;
  const LaunchArg a = ArgAt(Kind::kInput, c.a.input), b = ArgAt(Kind::kInput, c.b.input);
  const LaunchArg a_tiles = ArgAt(Kind::kScratch, 0), b_tiles = ArgAt(Kind::kScratch, 1);
  const LaunchArg scales = ArgAt(Kind::kScratch, 2), magnitudes = ArgAt(Kind::kScratch, 3);
  const LaunchArg partial = ArgAt(Kind::kScratch, 4);
  const auto launch = [&](const char* kernel, std::vector<LaunchArg> args, int64_t grid,
                          int64_t grid_y, int64_t threads) -> Launch& {
    Launch& added = candidate.plan.launches.emplace_back();
    added.kernel = kernel;
    added.args = std::move(args);
    added.grid[0] = grid;
    added.grid[1] = grid_y;
    added.block[0] = threads;
    return added;
  };
  if (pieces > 1) launch("measure", {a, b, magnitudes}, all_rows / kSplitRows, pieces, 1024);
  launch("split", {a, b, a_tiles, b_tiles, scales, magnitudes}, all_rows / kSplitRows, pieces,
         1024);
  launch("product", epilogue.Args({a, b, a_tiles, b_tiles, scales, partial}),
         std::min(tiles.units(parts, multiprocessors), multiprocessors), 1, by.threads)
      .dynamic_shared_bytes = by.shared_bytes;
  if (in_parts > 0) {
    launch("combine", epilogue.Args({a, b, scales, partial}), in_parts * kShape.m * kShape.n / 512,
           1, 256);
  }
  return candidate;
}

}  // namespace

Status CanMakeF32(const Contraction& c) {
  // Rows with few nonzero elements are computed slowly in float32. Shorter rows after a ReLU may
  // have that few.
  constexpr int64_t kLeastK = 256;
  return CheckSizes(c, kShape, kLeastK);
}

std::vector<int64_t> F32Schedules(const Contraction& c, int64_t multiprocessors) {
  return Tiles(c, kShape).PartCounts(multiprocessors, 3);
}

Candidate WriteF32(const Contraction& c, int64_t parts, int64_t multiprocessors) {
  return WriteBy(Wgmma(), c, parts, multiprocessors);
}

Candidate WriteF32Mma(const Contraction& c, int64_t parts, const MmaDevice& device) {
  const Multiplier by = MmaSync(device);
  Candidate candidate = WriteBy(by, c, parts, device.multiprocessors);
  candidate.params["mma"] = "sync";
  candidate.params["stages"] = by.pipeline.stages;
  return candidate;
}

}  // namespace cudaforge::tiles
