#include "generators/product.h"

#include <gtest/gtest.h>

#include "region.h"
#include "target/cuda/nvrtc_compiler.h"

namespace cudaforge {
namespace {

using rows::In;
using rows::Region;
using rows::Spec;

constexpr const char* kTarget = "cuda:sm_90a";

TensorSpec Transposed(int64_t rows, int64_t columns) {
  return Spec({rows, columns}, DType::kFloat32, {1, rows});
}

OpSignature Mm(TensorSpec a, TensorSpec b) {
  const TensorSpec out = Spec({a.sizes[0], b.sizes[1]});
  Region region;
  const Json left = region.Input(std::move(a)), right = region.Input(std::move(b));
  region.Call("mm", {left, right}, {out});
  OpSignature signature = region.Signature();
  signature.device = DeviceType::kCuda;
  return signature;
}

OpSignature Addmm(TensorSpec self, double alpha = 1, double beta = 1) {
  Region region;
  const Json added = region.Input(std::move(self));
  const Json a = region.Input(Spec({512, 256})), b = region.Input(Transposed(256, 384));
  region.Call("addmm", {added, a, b}, {Spec({512, 384})});
  OpSignature signature = region.Signature();
  signature.nodes[0].kwargs = {{"alpha", alpha}, {"beta", beta}};
  signature.device = DeviceType::kCuda;
  return signature;
}

std::vector<Candidate> All(const OpSignature& signature) {
  EXPECT_TRUE(CanGenerateProduct(signature, kTarget).ok())
      << CanGenerateProduct(signature, kTarget).ToString();
  std::vector<Candidate> all;
  DeviceArch arch;
  arch.target = kTarget;
  arch.multiprocessors = 132;
  const auto search = MakeProductSearch(signature, arch);
  EXPECT_TRUE(search.ok()) << search.status().ToString();
  while (std::optional<Candidate> candidate = (*search)->Next()) {
    EXPECT_TRUE(candidate->Validate(signature).ok()) << candidate->Validate(signature).ToString();
    (*search)->Tell(all.size(), {true, 1000});
    all.push_back(*std::move(candidate));
  }
  return all;
}

bool Has(const Candidate& candidate, const std::string& text) {
  return candidate.source.code.find(text) != std::string::npos;
}

std::string Refusal(const OpSignature& signature) {
  return CanGenerateProduct(signature, kTarget).message();
}

TEST(Product, ReadsOperandsInAnyLayout) {
  const Candidate plain = All(Mm(Spec({512, 256}), Spec({256, 384}))).front();
  EXPECT_TRUE(Has(plain, "kM = 512 ") && Has(plain, "kN = 384 ") && Has(plain, "kK = 256 "));
  EXPECT_TRUE(Has(plain, "kARow = 256 ") && Has(plain, "kAStep = 1 "));
  EXPECT_TRUE(Has(plain, "kBRow = 1 ") && Has(plain, "kBStep = 384 "));
  EXPECT_TRUE(Has(plain, "kAVector = 1 ") && Has(plain, "kBVector = 0 "));
  const Candidate other = All(Mm(Transposed(512, 256), Transposed(256, 384))).front();
  EXPECT_TRUE(Has(other, "kARow = 1 ") && Has(other, "kAStep = 512 "));
  EXPECT_TRUE(Has(other, "kBRow = 256 ") && Has(other, "kBStep = 1 "));
  EXPECT_TRUE(Has(other, "kAVector = 0 ") && Has(other, "kBVector = 1 "));
}

TEST(Product, UsesVectorsOnlyForAlignedRows) {
  TensorSpec a = Spec({512, 256}, DType::kFloat32, {256, 1});
  a.alignment = 4;
  EXPECT_TRUE(Has(All(Mm(a, Spec({256, 384}))).front(), "kAVector = 0 "));
  a = Spec({512, 256}, DType::kFloat32, {258, 1});
  EXPECT_TRUE(Has(All(Mm(a, Spec({256, 384}))).front(), "kAVector = 0 "));
  a = Spec({512, 260});
  EXPECT_TRUE(Has(All(Mm(a, Spec({260, 384}))).front(), "kAVector = 0 "));
}

TEST(Product, AddsABroadcastInput) {
  EXPECT_TRUE(Has(All(Addmm(Spec({384}))).front(), "kSelfRow = 0, kSelfColumn = 1 "));
  EXPECT_TRUE(Has(All(Addmm(Spec({512, 1}))).front(), "kSelfRow = 1, kSelfColumn = 0 "));
  EXPECT_TRUE(Has(All(Addmm(Spec({}))).front(), "kSelfRow = 0, kSelfColumn = 0 "));
  EXPECT_TRUE(Has(All(Addmm(Spec({512, 384}))).front(), "kSelfRow = 384, kSelfColumn = 1 "));
  const Candidate scaled = All(Addmm(Spec({384}), 0.5, 3)).front();
  const std::vector<LaunchArg>& args = scaled.plan.launches[1].args;
  EXPECT_EQ(args[0].index, 0);
  EXPECT_EQ(args[8].number, 0.5);
  EXPECT_EQ(args[9].number, 3);
}

TEST(Product, BetaZeroReadsNoInput) {
  const Candidate candidate = All(Addmm(Spec({384}), 1, 0)).front();
  EXPECT_TRUE(Has(candidate, "kAdds = 0 "));
  EXPECT_EQ(candidate.plan.launches[1].args[0].index, 1)
      << "any input: the kernel does not read it";
}

TEST(Product, SplitsSumsForFewTiles) {
  const std::vector<Candidate> few = All(Mm(Spec({128, 4096}), Spec({4096, 128})));
  EXPECT_EQ(few.front().params["parts"], 8);
  EXPECT_EQ(few.front().plan.launches.size(), 3u);
  EXPECT_EQ(few.back().params["parts"], 1);
  EXPECT_EQ(few.back().plan.launches.size(), 2u);
  const std::vector<Candidate> many = All(Mm(Spec({8192, 1024}), Spec({1024, 8192})));
  EXPECT_EQ(many.front().params["parts"], 1);
}

TEST(Product, AllowsOddSizes) {
  const Candidate odd = All(Mm(Spec({300, 777}), Spec({777, 1001}))).back();
  EXPECT_EQ(odd.plan.launches[0].grid[0].text(), std::to_string((384 + 1024) / 32));
  EXPECT_EQ(odd.plan.launches[1].grid[0].text(), "24");
  EXPECT_EQ(odd.plan.scratch_bytes[0].bytes.text(), std::to_string(384 * 832 * 4));
}

// The results are in registers: a spilled one costs more than the tensor cores gain.
TEST(ProductNvrtc, CompilesWithoutSpills) {
  const Result<NvrtcCompiler> compiler = NvrtcCompiler::Create();
  if (!compiler.ok()) GTEST_SKIP() << "needs NVRTC: set CUDAFORGE_CUDA_PATH";
  for (const OpSignature& signature :
       {Mm(Spec({2048, 1024}), Transposed(1024, 3072)),
        Mm(Transposed(3072, 2048), Spec({2048, 1024})), Mm(Spec({300, 777}), Spec({777, 1001})),
        Addmm(Spec({512, 1}), 0.5, 2)}) {
    for (const Candidate& candidate : All(signature)) {
      SCOPED_TRACE(candidate.params.dump());
      const CompileResult result = compiler->Compile(candidate.source.code, "sm_90a");
      ASSERT_TRUE(result.ok) << result.log;
      for (const Launch& launch : candidate.plan.launches) {
        EXPECT_EQ(result.resources.at(launch.kernel).at("spill_bytes"), 0) << launch.kernel;
      }
    }
  }
}

TEST(Product, RefusesOtherRegions) {
  EXPECT_EQ(CanGenerateProduct(Mm(Spec({512, 256}), Spec({256, 384})), "cuda:sm_80").message(),
            "no product kernel: made for cuda:sm_90a alone");
  EXPECT_EQ(
      Refusal(Mm(Spec({64, 64}), Spec({64, 64}))),
      "no product kernel: sides of 64 to 2^24, rows of 256 and more, and 2^24 products at least "
      "are made");
  EXPECT_EQ(
      Refusal(Mm(Spec({4096, 192}), Spec({192, 4096}))),
      "no product kernel: sides of 64 to 2^24, rows of 256 and more, and 2^24 products at least "
      "are made");
  EXPECT_EQ(
      Refusal(Mm(Spec({32, 4096}), Spec({4096, 4096}))),
      "no product kernel: sides of 64 to 2^24, rows of 256 and more, and 2^24 products at least "
      "are made");
  EXPECT_EQ(Refusal(Mm(Spec({512, 256}, DType::kFloat16), Spec({256, 384}, DType::kFloat16))),
            "no product kernel: an operand is not float32");
  EXPECT_EQ(Refusal(Mm(Spec({512, 256}, DType::kFloat32, {512, 2}), Spec({256, 384}))),
            "no product kernel: an operand has gaps between its elements");
  EXPECT_EQ(Refusal(Mm(Spec({512, 256}, DType::kFloat32, {0, 1}), Spec({256, 384}))),
            "no product kernel: an operand is expanded");
  OpSignature cpu = Mm(Spec({512, 256}), Spec({256, 384}));
  cpu.device = DeviceType::kCpu;
  EXPECT_EQ(Refusal(cpu), "no product kernel: not on a GPU");
  OpSignature two = Mm(Spec({512, 256}), Spec({256, 384}));
  two.nodes.push_back(two.nodes[0]);
  EXPECT_EQ(Refusal(two), "no product kernel: not one mm or addmm");
}

TEST(Product, GeneratorsUseIt) {
  const OpSignature signature = Mm(Spec({512, 256}), Spec({256, 384}));
  EXPECT_TRUE(CanGenerate(signature, kTarget).ok());
  EXPECT_FALSE(CanGenerate(signature, "cuda:sm_80").ok());
  DeviceArch arch;
  arch.target = kTarget;
  EXPECT_EQ(MakeSearch(signature, arch).status().code(), StatusCode::kUnsupported);
  arch.multiprocessors = 132;
  auto search = MakeSearch(signature, arch);
  ASSERT_TRUE(search.ok());
  EXPECT_EQ((*search)->Next()->author, "generator:product");
  EXPECT_TRUE(GeneratesHeavyOps(kTarget));
  EXPECT_FALSE(GeneratesHeavyOps("cpu:x86-64-v4"));
}

}  // namespace
}  // namespace cudaforge
