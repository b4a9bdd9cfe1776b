#include "generators/tiles/product_few_sm90.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "generators/tiles/search.h"
#include "target/cuda/nvrtc_compiler.h"
#include "tests/cpp/generators/region.h"

namespace cudaforge {
namespace {

using rows::Out;
using rows::Region;
using rows::Spec;

// A matrix with its rows, or its columns, in one piece.
TensorSpec Matrix(int64_t rows, int64_t columns, bool columns_in_one_piece = false) {
  if (!columns_in_one_piece) return Spec({rows, columns});
  return Spec({rows, columns}, DType::kFloat32, {1, rows});
}

OpSignature SignatureOfFew(const Region& region) {
  OpSignature signature = region.Signature();
  signature.device = DeviceType::kCuda;
  return signature;
}

OpSignature ProductOf(TensorSpec a, TensorSpec b) {
  Region region;
  const bool batch = a.sizes.size() == 3;
  std::vector<int64_t> sizes = a.sizes;
  sizes.back() = b.sizes.back();
  const Json left = region.Input(std::move(a)), right = region.Input(std::move(b));
  region.Call(batch ? "bmm" : "mm", {left, right}, {Spec(sizes)});
  return SignatureOfFew(region);
}

// relu(x w + bias) + residual, and the sum before.
OpSignature LayerOfFew(int64_t m, int64_t k, int64_t n) {
  Region region;
  const Json bias = region.Input(Spec({n}));
  const Json x = region.Input(Matrix(m, k)), w = region.Input(Matrix(k, n, true));
  const Json residual = region.Input(Spec({m, n}));
  const TensorSpec out = Spec({m, n});
  const int sum = region.Call("addmm", {bias, x, w}, {out});
  const int active = region.Call("relu", {Out(sum)}, {out});
  region.Output(region.Call("add.Tensor", {Out(active), residual}, {out}));
  region.Output(sum);
  return SignatureOfFew(region);
}

tiles::Contraction Read(const OpSignature& signature) {
  Result<tiles::Contraction> contraction = tiles::ReadContraction(signature);
  EXPECT_TRUE(contraction.ok()) << contraction.status().ToString();
  return *std::move(contraction);
}

std::string RefusalOfFew(const OpSignature& signature) {
  return tiles::CanMakeFew(Read(signature)).message();
}

std::vector<Candidate> AllOfFew(const OpSignature& signature, int64_t multiprocessors = 132) {
  const tiles::Contraction contraction = Read(signature);
  EXPECT_EQ(RefusalOfFew(signature), "");
  std::vector<Candidate> all;
  for (int64_t parts : tiles::FewSchedules(contraction, multiprocessors)) {
    all.push_back(tiles::WriteFew(contraction, parts, multiprocessors));
    const Status valid = all.back().Validate(signature);
    EXPECT_TRUE(valid.ok()) << valid.ToString();
  }
  return all;
}

int64_t Number(const IntExpr& expr) { return expr.Evaluate({}).value(); }

TEST(ProductFew, MakesFewRowsOrColumnsOfAnyNumber) {
  for (int64_t few : {1, 8, 37, 128, 129, 256}) {
    EXPECT_EQ(RefusalOfFew(ProductOf(Matrix(few, 2048), Matrix(2048, 4000, true))), "") << few;
    EXPECT_EQ(RefusalOfFew(ProductOf(Matrix(few, 2048, true), Matrix(2048, 4000))), "") << few;
    EXPECT_EQ(RefusalOfFew(ProductOf(Matrix(4000, 2048), Matrix(2048, few))), "") << few;
    EXPECT_EQ(RefusalOfFew(ProductOf(Matrix(4000, 2048, true), Matrix(2048, few, true))), "")
        << few;
  }
}

TEST(ProductFew, RefusesOtherSizes) {
  const std::string sizes =
      "no product kernel: few rows need at most 256 of them or as many columns, sums of at least "
      "256 terms, 512 rows of the other operand (128 with 8192 terms) and 2^20 elements";
  EXPECT_EQ(RefusalOfFew(ProductOf(Matrix(257, 2048), Matrix(2048, 4096))), sizes);
  EXPECT_EQ(RefusalOfFew(ProductOf(Matrix(64, 192), Matrix(192, 65536))), sizes);
  EXPECT_EQ(RefusalOfFew(ProductOf(Matrix(64, 8128), Matrix(8128, 256))), sizes);
  EXPECT_EQ(RefusalOfFew(ProductOf(Matrix(64, 1024), Matrix(1024, 1000))), sizes);
}

// The small operand is read by ordinary loads and may have any layout.
TEST(ProductFew, RefusesLargeOperandsThatNoTensorMapDescribes) {
  const std::string rows = "no product kernel: rows of the large operand do not begin at 16 bytes";
  EXPECT_EQ(RefusalOfFew(ProductOf(Matrix(64, 2049), Matrix(2049, 4096, true))), rows);
  EXPECT_EQ(RefusalOfFew(ProductOf(Matrix(64, 2048), Matrix(2048, 4099))), rows);
  EXPECT_EQ(RefusalOfFew(ProductOf(Matrix(63, 2049), Matrix(2049, 4096))), "");
  EXPECT_EQ(RefusalOfFew(ProductOf(Matrix(64, 2048), Matrix(2048, 4099, true))), "");
}

TEST(ProductFew, ReadsTheLargeOperandOnce) {
  for (bool exchanged : {false, true}) {
    const OpSignature signature = exchanged ? ProductOf(Matrix(128, 4096), Matrix(4096, 16384))
                                            : ProductOf(Matrix(16384, 4096), Matrix(4096, 128));
    const Candidate candidate = AllOfFew(signature).front();
    ASSERT_EQ(candidate.plan.tensor_maps.size(), 1u);
    EXPECT_EQ(candidate.plan.tensor_maps[0].of.index, exchanged ? 1 : 0);
    ASSERT_EQ(candidate.plan.launches[0].kernel, "split");
    EXPECT_EQ(candidate.plan.launches[0].args[0].index, exchanged ? 0 : 1);
    // Two halves of an element of the small operand, and no copy of the large one.
    EXPECT_EQ(Number(candidate.plan.scratch_bytes[0].bytes), 128 * 4096 * 4);
  }
}

// All tiles at once, in parts. The operand that is split ahead is the one whose rows hold k.
TEST(ProductFew, LongSumsOfFewRowsAndColumns) {
  const Candidate candidate = AllOfFew(ProductOf(Matrix(256, 524288), Matrix(524288, 256))).front();
  EXPECT_EQ(candidate.params, (Json{{"few", 256}, {"parts", 33}}));
  EXPECT_EQ(candidate.plan.tensor_maps[0].of.index, 1);
  EXPECT_EQ(Number(candidate.plan.scratch_bytes[0].bytes), int64_t{256} * 524288 * 4);
  EXPECT_EQ(Number(candidate.plan.launches[0].grid[0]), 256);
}

TEST(ProductFew, PadsColumnsToEight) {
  for (const auto& [few, padded] : {std::pair{1, 8}, {8, 8}, {9, 16}, {100, 104}, {128, 128}}) {
    const Candidate candidate =
        AllOfFew(ProductOf(Matrix(few, 4096), Matrix(4096, 4096, true))).front();
    EXPECT_EQ(Number(candidate.plan.scratch_bytes[0].bytes), padded * 4096 * 4);
    EXPECT_EQ(candidate.params["few"], few);
  }
}

TEST(ProductFew, SumsInPartsWhereThereAreFewTiles) {
  const auto parts_of = [](int64_t rows) {
    return AllOfFew(ProductOf(Matrix(16, 8192), Matrix(8192, rows, true))).front();
  };
  const Candidate whole = parts_of(16384);  // 128 tiles for 132 multiprocessors
  EXPECT_EQ(whole.params["parts"], 1);
  EXPECT_EQ(whole.plan.launches.back().kernel, "product");
  const Candidate parts = parts_of(4096);
  EXPECT_EQ(parts.params["parts"], 4);
  EXPECT_EQ(parts.plan.launches.back().kernel, "combine");
  EXPECT_EQ(Number(parts.plan.launches.back().grid[0]) * 256, 4096 * 16);
}

TEST(ProductFew, IsTriedBeforeOtherKernels) {
  const OpSignature signature = ProductOf(Matrix(128, 4096), Matrix(4096, 16384));
  DeviceArch arch;
  arch.target = tiles::kHopperTarget;
  arch.multiprocessors = 132;
  const auto search = tiles::MakeProductSearch(signature, arch);
  ASSERT_TRUE(search.ok());
  std::vector<bool> few;
  while (const std::optional<Candidate> candidate = (*search)->Next())
    few.push_back(candidate->params.contains("few"));
  EXPECT_TRUE(few.front());
  EXPECT_EQ(std::ranges::count(few, false), 1);
  EXPECT_LE(few.size(), 4u);
  // Rows too few for the others.
  EXPECT_TRUE(tiles::CanGenerateProduct(ProductOf(Matrix(3, 4096), Matrix(4096, 4096)),
                                        tiles::kHopperTarget)
                  .ok());
}

// Sums and fragments are in registers.
TEST(ProductFewNvrtc, CompilesWithHardlyASpill) {
  const Result<NvrtcCompiler> compiler = NvrtcCompiler::Create();
  if (!compiler.ok()) GTEST_SKIP() << "needs NVRTC: set CUDAFORGE_CUDA_PATH";
  for (const OpSignature& signature : {ProductOf(Matrix(128, 16384), Matrix(16384, 16384, true)),
                                       ProductOf(Matrix(128, 4096), Matrix(4096, 4096)),
                                       ProductOf(Matrix(128, 4160, true), Matrix(4160, 1001, true)),
                                       ProductOf(Matrix(32768, 2048), Matrix(2048, 128)),
                                       ProductOf(Matrix(2000, 1000, true), Matrix(1000, 37)),
                                       ProductOf(Spec({6, 16, 512}), Spec({6, 512, 4096})),
                                       LayerOfFew(50, 2048, 1000), LayerOfFew(17000, 512, 128)}) {
    for (const Candidate& candidate : AllOfFew(signature)) {
      SCOPED_TRACE(signature.Describe() + " " + candidate.params.dump());
      const CompileResult result = compiler->Compile(candidate.source.code, "sm_90a");
      ASSERT_TRUE(result.ok) << result.log;
      EXPECT_EQ(result.log.find("serialized"), std::string::npos) << result.log;
      for (const Launch& launch : candidate.plan.launches) {
        // A few indices, outside of the loop.
        EXPECT_LE(result.resources.at(launch.kernel).at("spill_bytes"), 80)
            << launch.kernel << result.resources.dump();
      }
    }
  }
}

}  // namespace
}  // namespace cudaforge
