#include "generators/tiles/product_f32.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/text.h"
#include "generators/rows/cuda/prelude.h"
#include "generators/tiles/device_texts.h"
#include "generators/tiles/epilogue.h"
#include "generators/tiles/product_half_mma.h"
#include "generators/tiles/units.h"
#include "generators/tiles/wgmma.h"

namespace cudaforge::tiles {
namespace {

constexpr TileShape kShape = {.m = 128, .n = 128, .k = 64};
// As many stages as fit into a multiprocessor's shared memory, of h and l of both operands.
constexpr PipelineShape kPipeline = {.stages = 3,
                                     .stage_bytes = 2 * (kShape.m + kShape.n) * kShape.k * 2};
// A stage of mma.sync's ring has 32 of k.
constexpr int64_t kRingStageBytes = (kShape.m + kShape.n) * 32 * 2 * 2;

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
                          "tiles/warps_sm90.cuh", "tiles/units.cuh", "tiles/four_neighbours.cuh",
                          "tiles/pipeline_sm90.cuh"}) +
              MmaText({.n = static_cast<int>(kShape.n)});
  by.after =
      DeviceText({"tiles/sum_again.cuh", "tiles/product_f32.cuh", "tiles/product_f32_sm90.cuh"});
  return by;
}

Multiplier MmaSync(const MmaDevice& device) {
  Multiplier by;
  by.pipeline = {.stages = std::clamp<int64_t>(device.block_bytes / kRingStageBytes, 2, 5),
                 .stage_bytes = kRingStageBytes};
  by.shared_bytes = by.pipeline.stages * kRingStageBytes;
  by.strips = 4;
  by.bounds = "kThreads, 1";
  by.threads = 256;
  by.before = ConstantText("kThreads", by.threads) +
              DeviceText({"device/async_copy.cuh", "device/matrices.cuh", "device/mma.cuh",
                          "tiles/units.cuh", "tiles/four_neighbours.cuh", "tiles/mma_ring.cuh"});
  by.after =
      DeviceText({"tiles/sum_again.cuh", "tiles/product_f32.cuh", "tiles/product_f32_mma.cuh"});
  return by;
}

constexpr int64_t kSplitRows = 32;  // of a block of `split`
constexpr int64_t kMagnitudesBytes = 12;
// The fewest elements that are not zero in a row that is split: with fewer, float32's own sums are
// as accurate. Short sums may have few everywhere, after a ReLU; one-hot rows stay exact.
int64_t FewestNonzero(int64_t k) { return k < 256 ? 2 : 64; }

// Products apart are as a batch of right operands.
Tiles TilesOfF32(Contraction c) {
  if (c.is_apart()) c.batch = c.products(), c.b.batch = 1;
  return {c, kShape};
}

int64_t RowsOfA(const Tiles& tiles) { return tiles.matrices_a * tiles.m * kShape.m; }
int64_t RowsOfB(const Tiles& tiles) { return tiles.matrices_b * tiles.n * kShape.n; }

// Pieces of each row that are split by blocks of their own, where each call splits few rows.
int64_t PiecesOfRows(const Contraction& c, const Tiles& tiles, int64_t multiprocessors) {
  const int64_t rows = (c.a.frozen ? 0 : RowsOfA(tiles)) + (c.b.frozen ? 0 : RowsOfB(tiles));
  const int64_t blocks = std::max<int64_t>(rows / kSplitRows, 1);
  constexpr int64_t kLeastStepsOfPiece = 32;
  return std::clamp<int64_t>(CeilDiv(2 * multiprocessors, blocks), 1,
                             std::max<int64_t>(1, tiles.steps / kLeastStepsOfPiece));
}

bool HasVectors(const Operand& operand, int64_t k) {
  return operand.step == 1 && k % 8 == 0 && operand.row % 4 == 0 && operand.batch % 4 == 0 &&
         operand.alignment % 16 == 0;
}

// Which operand's rows `split` adds up.
int64_t Summed(const Contraction& c) {
  return !c.operand_sums.has_value() ? 0 : c.operand_sums->of_b ? 2 : 1;
}

std::string SplitConstants(const Contraction& c, int64_t pieces) {
  const std::pair<const char*, int64_t> constants[] = {{"kAVector", HasVectors(c.a, c.k)},
                                                       {"kBVector", HasVectors(c.b, c.k)},
                                                       {"kPieces", pieces},
                                                       {"kProducts", c.products()},
                                                       {"kFewest", FewestNonzero(c.k)},
                                                       {"kSummed", Summed(c)}};
  std::string text = StrideConstants(c.a, c.b);
  for (const auto& [name, value] : constants) text += ConstantText(name, value);
  return text;
}

// `a` and the right operands as parameters, and these as a MatricesB.
struct OperandsText {
  std::string parameters = "const float* __restrict__ a, ", b;

  explicit OperandsText(int64_t products) {
    for (int64_t p = 0; p < products; ++p) {
      parameters += Cat("const float* __restrict__ b", p, ", ");
      b += Cat(p == 0 ? "b" : ", b", p);
    }
    b = "MatricesB{{" + b + "}}";
  }
};

std::string SplitKernels(const OperandsText& operands, bool sums) {
  const std::string sums_parameters =
      sums ? ", float* __restrict__ sums, float* __restrict__ sums_of_pieces" : "";
  const std::string head = "extern \"C\" __global__ void __launch_bounds__(kSplitThreads) ";
  const std::string of_rows =
      Cat("a_magnitudes, b_magnitudes, begin, ", sums ? "{sums, sums_of_pieces}" : "{}", "); }\n");
  return Cat(head, "measure(", operands.parameters,
             "Magnitudes* __restrict__ a_magnitudes, Magnitudes* __restrict__ b_magnitudes, "
             "long long begin",
             sums_parameters, ") { Measure(a, ", operands.b, ", ", of_rows, head, "split(",
             operands.parameters,
             "unsigned char* __restrict__ a_tiles, unsigned char* __restrict__ b_tiles, "
             "float* __restrict__ a_scales, float* __restrict__ b_scales, "
             "const Magnitudes* __restrict__ a_magnitudes, "
             "const Magnitudes* __restrict__ b_magnitudes, long long begin",
             sums_parameters, ") { Split(a, ", operands.b,
             ", a_tiles, b_tiles, a_scales, b_scales, ", of_rows);
}

// The kernels that call Product and Combine.
std::string F32Kernels(const EpilogueText& epilogue, const OperandsText& operands,
                       const char* bounds, bool combines) {
  const std::string sums =
      "const float* __restrict__ a_scales, const float* __restrict__ b_scales, "
      "float* __restrict__ partial";
  std::string text = epilogue.Kernel(
      "product", bounds,
      operands.parameters +
          "const unsigned char* __restrict__ a_tiles, const unsigned char* __restrict__ b_tiles, " +
          sums,
      Cat("Product(epilogue, a, ", operands.b,
          ", a_tiles, b_tiles, a_scales, b_scales, partial);"));
  if (combines) {
    text += epilogue.Kernel(
        "combine", "256", operands.parameters + sums,
        Cat("Combine(epilogue, a, ", operands.b, ", a_scales, b_scales, partial);"));
  }
  return text;
}

// The buffers of the tiles, scales and magnitudes of one operand.
struct SplitBuffers {
  std::vector<LaunchArg> inputs;
  LaunchArg tiles, scales, magnitudes;
};

// Tiles and scales of a frozen operand are prepared ones.
SplitBuffers AddBuffers(LaunchPlan& plan, const Operand& operand, const std::vector<int>& siblings,
                        int64_t rows, int64_t steps, int64_t pieces) {
  const auto scratch = [&](int64_t bytes) {
    plan.scratch_bytes.emplace_back(bytes);
    return ArgAt(LaunchArg::Kind::kScratch, static_cast<int>(plan.scratch_bytes.size()) - 1);
  };
  const auto kept = [&](int64_t bytes) {
    if (!operand.frozen) return scratch(bytes);
    plan.prepared_bytes.emplace_back(bytes);
    return ArgAt(LaunchArg::Kind::kPrepared, static_cast<int>(plan.prepared_bytes.size()) - 1);
  };
  SplitBuffers buffers;
  buffers.inputs = {ArgAt(LaunchArg::Kind::kInput, operand.input)};
  for (int input : siblings) buffers.inputs.push_back(ArgAt(LaunchArg::Kind::kInput, input));
  buffers.tiles = kept(rows * steps * kShape.k * 2 * 2);  // two halves an element
  buffers.scales = kept(rows * int64_t{sizeof(float)});
  buffers.magnitudes = scratch(pieces > 1 ? rows * pieces * kMagnitudesBytes : 4);
  return buffers;
}

Launch LaunchOf(const char* kernel, std::vector<LaunchArg> args, int64_t grid, int64_t grid_y,
                int64_t threads) {
  Launch launch;
  launch.kernel = kernel;
  launch.args = std::move(args);
  launch.grid[0] = grid;
  launch.grid[1] = grid_y;
  launch.block[0] = threads;
  return launch;
}

std::vector<LaunchArg> WithInputs(const std::vector<LaunchArg>& inputs,
                                  std::vector<LaunchArg> others) {
  others.insert(others.begin(), inputs.begin(), inputs.end());
  return others;
}

// Splits `rows` rows of all `inputs`, from row `begin`; one operand alone is given as both. sums:
// the buffers of an operand's sums, and of those of pieces; or none.
void AddSplit(std::vector<Launch>& to, const std::vector<LaunchArg>& inputs, const SplitBuffers& a,
              const SplitBuffers& b, int64_t begin, int64_t rows, int64_t pieces,
              const std::vector<LaunchArg>& sums = {}) {
  const auto with_sums = [&](std::vector<LaunchArg> args) {
    args.insert(args.end(), sums.begin(), sums.end());
    return args;
  };
  LaunchArg first = ArgAt(LaunchArg::Kind::kInt, 0);
  first.expr = begin;
  const int64_t blocks = rows / kSplitRows;
  if (pieces > 1) {
    to.push_back(LaunchOf("measure",
                          with_sums(WithInputs(inputs, {a.magnitudes, b.magnitudes, first})),
                          blocks, pieces, 1024));
  }
  to.push_back(LaunchOf("split",
                        with_sums(WithInputs(inputs, {a.tiles, b.tiles, a.scales, b.scales,
                                                      a.magnitudes, b.magnitudes, first})),
                        blocks, pieces, 1024));
}

Candidate WriteBy(const Multiplier& by, const Contraction& c, int64_t parts,
                  int64_t multiprocessors) {
  const Tiles tiles = TilesOfF32(c);
  const int64_t pieces = PiecesOfRows(c, tiles, multiprocessors);
  const int64_t in_parts = tiles.all - tiles.whole(parts, multiprocessors);
  const int64_t rows_a = RowsOfA(tiles), rows_b = RowsOfB(tiles);
  const EpilogueText epilogue = WriteEpilogueText(c);
  const OperandsText operands(c.products());

  Candidate candidate;
  candidate.author = "generator:product";
  candidate.params = {{"parts", parts}};
  candidate.source.language = Language::kCuda;
  candidate.source.code = "#include <cuda_fp16.h>\n" +
                          PipelineConstants(c, tiles, parts, multiprocessors, by.pipeline) +
                          SplitConstants(c, pieces) + ConstantText("kStrips", by.strips) +
                          std::string(rows::CudaPrelude()) + by.before +
                          DeviceText({"device/split.cuh", "tiles/split_rows.cuh"}) +
                          SplitKernels(operands, c.operand_sums.has_value()) + epilogue.text +
                          by.after + F32Kernels(epilogue, operands, by.bounds, in_parts > 0);

  LaunchPlan& plan = candidate.plan;
  const SplitBuffers a = AddBuffers(plan, c.a, {}, rows_a, tiles.steps, pieces);
  const SplitBuffers b = AddBuffers(plan, c.b, c.siblings, rows_b, tiles.steps, pieces);
  plan.scratch_bytes.emplace_back(tiles.PartialBytes(parts, multiprocessors));
  const LaunchArg partial =
      ArgAt(LaunchArg::Kind::kScratch, static_cast<int>(plan.scratch_bytes.size()) - 1);
  std::vector<LaunchArg> sums;
  if (c.operand_sums.has_value()) {
    const int64_t rows = c.operand_sums->of_b ? rows_b : rows_a;
    plan.scratch_bytes.emplace_back(pieces > 1 ? rows * pieces * int64_t{sizeof(float)} : 4);
    sums = {ArgAt(LaunchArg::Kind::kOutput, c.operand_sums->output),
            ArgAt(LaunchArg::Kind::kScratch, static_cast<int>(plan.scratch_bytes.size()) - 1)};
  }
  const std::vector<LaunchArg> inputs = WithInputs(a.inputs, b.inputs);
  if (c.a.frozen == c.b.frozen) {
    AddSplit(c.a.frozen ? plan.prepare : plan.launches, inputs, a, b, 0, rows_a + rows_b, pieces,
             sums);
  } else {
    const std::vector<LaunchArg> only_a(inputs.size(), a.inputs[0]);
    AddSplit(c.a.frozen ? plan.prepare : plan.launches, only_a, a, a, 0, rows_a, pieces);
    AddSplit(c.b.frozen ? plan.prepare : plan.launches, WithInputs({b.inputs[0]}, b.inputs), b, b,
             rows_a, rows_b, pieces);
  }
  plan.launches.push_back(LaunchOf(
      "product", epilogue.Args(WithInputs(inputs, {a.tiles, b.tiles, a.scales, b.scales, partial})),
      std::min(tiles.units(parts, multiprocessors), multiprocessors), 1, by.threads));
  plan.launches.back().dynamic_shared_bytes = by.shared_bytes;
  if (in_parts > 0) {
    plan.launches.push_back(
        LaunchOf("combine", epilogue.Args(WithInputs(inputs, {a.scales, b.scales, partial})),
                 in_parts * kShape.m * kShape.n / 512, 1, 256));
  }
  return candidate;
}

}  // namespace

Status CanMakeF32(const Contraction& c) {
  constexpr int64_t kLeastK = 32;
  if (c.is_together())
    return Status::Unsupported("no product kernel: results of two products in float32");
  return CheckSizes(c, kShape, kLeastK);
}

std::vector<int64_t> F32Schedules(const Contraction& c, int64_t multiprocessors) {
  return TilesOfF32(c).PartCounts(multiprocessors, 3);
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
