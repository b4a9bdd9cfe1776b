#include "generators/tiles/product_few_sm90.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/text.h"
#include "generators/rows/cuda/prelude.h"
#include "generators/tiles/device_texts.h"
#include "generators/tiles/epilogue.h"
#include "generators/tiles/operand_maps.h"
#include "generators/tiles/units.h"
#include "generators/tiles/wgmma.h"

namespace cudaforge::tiles {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kMostOfTile = 128;   // columns: the sums are in registers
constexpr int64_t kMostColumns = 256;  // more rather have all numbers split once
constexpr int64_t kRowsOfTile = 128;
constexpr int64_t kStepK = 64;
constexpr int64_t kLeastLargeRows = 512, kLeastDepth = 256;
constexpr int64_t kLongSums = 8192;                   // with them fewer rows are as large
constexpr int64_t kLeastElements = int64_t{1} << 20;  // of the large operand
constexpr int64_t kMostRows = int64_t{1} << 24;
constexpr int64_t kFewestOfRow = 64;  // nonzero elements of a row that is split
// Of a multiprocessor, less what the kernel has besides its stages.
constexpr int64_t kRingBytes = (int64_t{227} << 10) - 20480;

// Rows that hold k are split by more blocks.
bool IsExchanged(const Contraction& c) {
  return c.m < c.n || (c.m == c.n && c.a.rows_hold_k() && !c.b.rows_hold_k());
}

// The product as the kernel sees it: A is large, B has few columns. The epilogue is the region's.
Contraction OfKernel(const Contraction& c) {
  Contraction exchanged = c;
  if (!IsExchanged(c)) return exchanged;
  std::swap(exchanged.m, exchanged.n);
  std::swap(exchanged.a, exchanged.b);
  return exchanged;
}

TileShape ShapeOfFew(const Contraction& kernel) {
  const int64_t tiles = CeilDiv(kernel.n, kMostOfTile);
  return {.m = kRowsOfTile, .n = CeilDiv(CeilDiv(kernel.n, tiles), 8) * 8, .k = kStepK};
}

int64_t TileBytes(const TileShape& shape) { return shape.n * shape.k * 2 * 2; }  // two halves

// Stages of the large operand, which come from far, and of the small one, from the L2 cache.
struct Rings {
  PipelineShape large;
  int64_t small_stages = 0, small_bytes = 0;

  int64_t shared_bytes() const { return large.shared_bytes() + small_stages * small_bytes; }
};

Rings RingsOfFew(const TileShape& shape) {
  Rings rings;
  rings.large.stage_bytes = shape.m * shape.k * kFloat;
  rings.small_bytes = TileBytes(shape);
  rings.small_stages = rings.small_bytes > 16384 ? 2 : 3;
  rings.large.stages =
      (kRingBytes - rings.small_stages * rings.small_bytes) / rings.large.stage_bytes;
  return rings;
}

std::string ConstantsOfFew(const Contraction& c, const Contraction& kernel) {
  const std::pair<const char*, int64_t> constants[] = {
      {"kARowsHoldK", kernel.a.rows_hold_k()},
      {"kReorders", kernel.a.rows_hold_k()},
      {"kExchanged", IsExchanged(c)},
      {"kFourNeighbours", 0},
      // Rows with fewer elements that are not zero are not split: float32's sums are as accurate.
      {"kFewest", kFewestOfRow}};
  std::string text = StrideConstants(kernel.a, kernel.b);
  for (const auto& [name, value] : constants) text += ConstantText(name, value);
  return text;
}

std::string KernelsOfFew(const EpilogueText& epilogue, bool combines) {
  const std::string operands =
      "const float* __restrict__ a, const float* __restrict__ b, const Column* __restrict__ "
      "columns, ";
  std::string text = epilogue.Kernel(
      "product", "kPipelineThreads, 1",
      "const __grid_constant__ CfTensorMap a_map, const unsigned char* __restrict__ b_tiles, " +
          operands + "float* __restrict__ partial, float2* __restrict__ bounds",
      "Product(epilogue, a_map, b_tiles, {a, b, columns}, partial, bounds);");
  if (combines) {
    text += epilogue.Kernel(
        "combine", "256",
        operands + "const float* __restrict__ partial, const float2* __restrict__ bounds",
        "Combine(epilogue, {a, b, columns}, partial, bounds);");
  }
  return text;
}

}  // namespace

Status CanMakeFew(const Contraction& c) {
  const Contraction kernel = OfKernel(c);
  const int64_t most = std::max({c.batch, kernel.m, kernel.k});
  if (c.products() > 1) return Status::Unsupported("no product kernel: several products");
  const int64_t least_rows = kernel.k >= kLongSums ? kRowsOfTile : kLeastLargeRows;
  if (kernel.n > kMostColumns || kernel.m < least_rows || kernel.k < kLeastDepth ||
      most > kMostRows || kernel.m * kernel.k < kLeastElements / c.batch) {
    return Status::Unsupported(
        "no product kernel: few rows need at most 256 of them or as many columns, sums of at least "
        "256 terms, 512 rows of the other operand (128 with 8192 terms) and 2^20 elements");
  }
  const TileShape shape = ShapeOfFew(kernel);
  const Tiles tiles(kernel, shape);
  if (tiles.all > kMostRows ||
      c.batch * tiles.m * shape.m > std::numeric_limits<int32_t>::max() / 2)
    return Status::Unsupported("no product kernel: more than 2^24 tiles");
  return CheckMap(kernel.a, "the large operand");
}

std::vector<int64_t> FewSchedules(const Contraction& c, int64_t multiprocessors) {
  const Contraction kernel = OfKernel(c);
  return Tiles(kernel, ShapeOfFew(kernel)).PartCounts(multiprocessors, 2);
}

Candidate WriteFew(const Contraction& c, int64_t parts, int64_t multiprocessors) {
  const Contraction kernel = OfKernel(c);
  const TileShape shape = ShapeOfFew(kernel);
  const Tiles tiles(kernel, shape);
  const Rings rings = RingsOfFew(shape);
  const int64_t in_parts = tiles.all - tiles.whole(parts, multiprocessors);
  const EpilogueText epilogue = WriteEpilogueText(c);
  const MmaShape mma = {.n = static_cast<int>(shape.n), .a_in_registers = true};

  Candidate candidate;
  candidate.author = "generator:product";
  candidate.params = {{"few", kernel.n}, {"parts", parts}};
  candidate.source.language = Language::kCuda;
  candidate.source.code =
      "#include <cuda_fp16.h>\n" +
      PipelineConstants(kernel, tiles, parts, multiprocessors, rings.large) +
      ConstantText("kStagesB", rings.small_stages) + ConstantsOfFew(c, kernel) +
      std::string(rows::CudaPrelude()) +
      DeviceText({"device/barrier.cuh", "device/bulk_copy.cuh", "device/tensor_copy.cuh",
                  "device/wgmma.cuh", "tiles/warps_sm90.cuh", "tiles/units.cuh",
                  "tiles/four_neighbours.cuh", "tiles/pipeline_sm90.cuh", "device/split.cuh",
                  "tiles/split_blocks_sm90.cuh", "tiles/split_few_sm90.cuh"}) +
      MmaText(mma) + epilogue.text +
      DeviceText({"tiles/sum_again.cuh", "tiles/tile_sums_sm90.cuh", "tiles/few_columns_sm90.cuh",
                  "tiles/product_few_sm90.cuh"}) +
      KernelsOfFew(epilogue, in_parts > 0);

  const int64_t rows_of_b = tiles.matrices_b * tiles.n * shape.n;
  LaunchPlan& plan = candidate.plan;
  plan.scratch_bytes = {tiles.matrices_b * tiles.n * tiles.steps * TileBytes(shape),
                        rows_of_b * 2 * kFloat, tiles.PartialBytes(parts, multiprocessors),
                        std::max<int64_t>(1, in_parts * parts) * shape.m * 2 * kFloat};
  plan.tensor_maps = {
      MapOf(kernel.a.input, kernel.a, kernel.m, kernel.k, kernel.batch, kRowsOfTile)};
  using Kind = LaunchArg::Kind;
  const LaunchArg a = ArgAt(Kind::kInput, kernel.a.input), b = ArgAt(Kind::kInput, kernel.b.input);
  const LaunchArg b_tiles = ArgAt(Kind::kScratch, 0), columns = ArgAt(Kind::kScratch, 1);
  const LaunchArg partial = ArgAt(Kind::kScratch, 2), bounds = ArgAt(Kind::kScratch, 3);
  const auto launch = [&](const char* name, std::vector<LaunchArg> args, int64_t grid,
                          int64_t threads) -> Launch& {
    Launch& added = plan.launches.emplace_back();
    added.kernel = name;
    added.args = std::move(args);
    added.grid[0] = grid;
    added.block[0] = threads;
    return added;
  };
  launch("split", {b, b_tiles, columns}, rows_of_b / (kernel.b.rows_hold_k() ? 1 : 8), 1024);
  launch("product",
         epilogue.Args({ArgAt(Kind::kTensorMap, 0), b_tiles, a, b, columns, partial, bounds}),
         std::min(tiles.units(parts, multiprocessors), multiprocessors), 384)
      .dynamic_shared_bytes = rings.shared_bytes();
  if (in_parts > 0) {
    launch("combine", epilogue.Args({a, b, columns, partial, bounds}),
           in_parts * shape.m * shape.n / 256, 256);
  }
  return candidate;
}

}  // namespace cudaforge::tiles
