#include "generators/tiles/product_batch_sm90.h"

#include <algorithm>
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

// Each tile splits the rows and columns that it has: with large matrices or long sums this is done
// too often, or has rows that are better not split (product_f32.cc).
constexpr int64_t kLeastOfBatch = 8, kLeastSide = 32, kMostOfSide = 512;
constexpr int64_t kLeastSum = 32, kMostSum = 255;
constexpr int64_t kLeastBatchWork = int64_t{1} << 24;
constexpr int64_t kMostOfBatch = int64_t{1} << 20;
// Of a multiprocessor, less what the kernel has apart from its stages.
constexpr int64_t kBatchBytes = (int64_t{227} << 10) - 24576;

TileShape ShapeOfBatch(const Contraction& c) {
  return {.m = 128, .n = c.n <= 64 ? 64 : 128, .k = 64};
}

// Stages of floats, and a tile's halves: as many bytes as a stage.
PipelineShape PipelineOfBatch(const TileShape& shape) {
  PipelineShape pipeline;
  pipeline.stage_bytes = (shape.m + shape.n) * shape.k * int64_t{sizeof(float)};
  pipeline.stages = kBatchBytes / pipeline.stage_bytes - 1;
  return pipeline;
}

std::string ConstantsOfBatch(const Contraction& c) {
  return StrideConstants(c.a, c.b) + ConstantText("kARowsHoldK", c.a.rows_hold_k()) +
         ConstantText("kBRowsHoldK", c.b.rows_hold_k()) + ConstantText("kExchanged", 0) +
         ConstantText("kFourNeighbours", 1) +
         ConstantText("kFewest", 2);  // one-hot rows stay exact
}

}  // namespace

Status CanMakeBatch(const Contraction& c) {
  if (c.products() > 1 || c.batch < kLeastOfBatch || c.batch > kMostOfBatch || c.a.batch == 0 ||
      c.b.batch == 0 || std::min(c.m, c.n) < kLeastSide || std::max(c.m, c.n) > kMostOfSide ||
      c.k < kLeastSum || c.k > kMostSum || c.batch * c.m * c.n < kLeastBatchWork / c.k) {
    return Status::Unsupported(
        "no product kernel: not a batch of 8 or more matrices with 32 to 512 rows and columns and "
        "sums of 32 to 255 terms");
  }
  CF_RETURN_IF_ERROR(CheckMap(c.a, "an operand"));
  return CheckMap(c.b, "an operand");
}

Candidate WriteBatch(const Contraction& c, int64_t multiprocessors) {
  const TileShape shape = ShapeOfBatch(c);
  const Tiles tiles(c, shape);
  const PipelineShape pipeline = PipelineOfBatch(shape);
  const EpilogueText epilogue = WriteEpilogueText(c);

  Candidate candidate;
  candidate.author = "generator:product";
  candidate.params = {{"batch", true}, {"n", shape.n}};
  candidate.source.language = Language::kCuda;
  candidate.source.code =
      "#include <cuda_fp16.h>\n" + PipelineConstants(c, tiles, 1, multiprocessors, pipeline) +
      ConstantsOfBatch(c) + std::string(rows::CudaPrelude()) +
      DeviceText({"device/barrier.cuh", "device/matrices.cuh", "device/tensor_copy.cuh",
                  "device/wgmma.cuh", "tiles/warps_sm90.cuh", "tiles/units.cuh",
                  "tiles/four_neighbours.cuh", "tiles/pipeline_sm90.cuh",
                  "tiles/split_blocks_sm90.cuh"}) +
      MmaText({.n = static_cast<int>(shape.n)}) + epilogue.text +
      DeviceText(
          {"tiles/sum_again.cuh", "tiles/tile_sums_sm90.cuh", "tiles/product_batch_sm90.cuh"}) +
      epilogue.Kernel("product", "kPipelineThreads, 1",
                      "const __grid_constant__ CfTensorMap a_map, const __grid_constant__ "
                      "CfTensorMap b_map, const float* __restrict__ a, const float* __restrict__ b",
                      "Product(epilogue, a_map, b_map, a, b);");

  LaunchPlan& plan = candidate.plan;
  plan.tensor_maps = {MapOf(c.a.input, c.a, c.m, c.k, c.batch, shape.m),
                      MapOf(c.b.input, c.b, c.n, c.k, c.batch, shape.n)};
  using Kind = LaunchArg::Kind;
  Launch product;
  product.kernel = "product";
  product.args = epilogue.Args({ArgAt(Kind::kTensorMap, 0), ArgAt(Kind::kTensorMap, 1),
                                ArgAt(Kind::kInput, c.a.input), ArgAt(Kind::kInput, c.b.input)});
  product.grid[0] = std::min(tiles.all, multiprocessors);
  product.block[0] = 384;
  product.dynamic_shared_bytes = pipeline.shared_bytes() + pipeline.stage_bytes;
  plan.launches = {std::move(product)};
  return candidate;
}

}  // namespace cudaforge::tiles
