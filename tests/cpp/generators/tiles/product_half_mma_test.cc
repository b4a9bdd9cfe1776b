#include "generators/tiles/product_half_mma.h"

#include <gtest/gtest.h>

#include "generators/generator.h"
#include "generators/tiles/product_f32.h"
#include "generators/tiles/search.h"
#include "generators/tiles/units.h"
#include "target/cuda/nvrtc_compiler.h"
#include "tests/cpp/generators/tiles/mma_regions.h"

namespace cudaforge::tiles {
namespace {

using rows::Spec;

// An A100, an L40S and others, as they report themselves.
DeviceArch Gpu(const std::string& target) {
  DeviceArch arch;
  arch.target = target;
  arch.multiprocessors = target == "cuda:sm_80" ? 108 : 142;
  const int64_t kib = target == "cuda:sm_80" ? 164 : target == "cuda:sm_90a" ? 228 : 100;
  arch.shared_bytes_per_multiprocessor = kib << 10;
  arch.shared_bytes_per_block_optin = (kib - 1) << 10;
  return arch;
}

// By mma.sync on any GPU, the best guess first.
std::vector<Candidate> Candidates(const OpSignature& signature, const MmaDevice& device) {
  const Contraction c = *ReadContraction(signature);
  std::vector<Candidate> all;
  if (c.a.dtype == kF32) {
    for (int64_t parts : F32Schedules(c, device.multiprocessors))
      all.push_back(WriteF32Mma(c, parts, device));
  } else {
    for (const MmaSchedule& schedule : HalfMmaSchedules(c, device))
      all.push_back(WriteHalfMma(c, schedule, device));
  }
  for (const Candidate& candidate : all)
    EXPECT_TRUE(candidate.Validate(signature).ok()) << candidate.Validate(signature).ToString();
  return all;
}

class ProductMmaNvrtc : public testing::Test {
 protected:
  void SetUp() override {
    Result<NvrtcCompiler> compiler = NvrtcCompiler::Create();
    if (!compiler.ok()) GTEST_SKIP() << "needs NVRTC: set CUDAFORGE_CUDA_PATH";
    compiler_.emplace(*std::move(compiler));
  }

  void ExpectFits(const OpSignature& signature, const Candidate& candidate,
                  const std::string& target) {
    SCOPED_TRACE(target + " " + signature.Describe() + " " + candidate.params.dump());
    const CompileResult result = compiler_->Compile(candidate.source.code, target.substr(5));
    ASSERT_TRUE(result.ok) << result.log;
    const DeviceArch arch = Gpu(target);
    for (const Launch& launch : candidate.plan.launches) {
      const Json& resources = result.resources.at(launch.kernel);
      SCOPED_TRACE(launch.kernel + resources.dump());
      // In float32 an index or two, once a step.
      EXPECT_LE(resources.at("spill_bytes"), signature.inputs[0].dtype == kF32 ? 64 : 0);
      const int64_t shared = resources.at("shared_bytes").get<int64_t>() +
                             launch.dynamic_shared_bytes.Evaluate(signature).value();
      EXPECT_LE(shared, *arch.shared_bytes_per_block_optin);
      const int64_t threads = launch.block[0].Evaluate(signature).value();
      EXPECT_LE(resources.at("registers").get<int64_t>() * threads, 65536);
      const int64_t blocks = launch.kernel == "product" && threads == 128 ? 2 : 1;
      EXPECT_LE(blocks * (shared + MmaDevice::kBlockReserve),
                *arch.shared_bytes_per_multiprocessor);
    }
  }

  std::optional<NvrtcCompiler> compiler_;
};

TEST_F(ProductMmaNvrtc, CompilesForEveryTarget) {
  const OpSignature signatures[] = {
      ProductOf(Spec({2048, 1024}), Spec({1024, 3072}, kF32, {1, 1024})),
      ProductOf(Spec({300, 777}), Spec({777, 1001})),
      LayerOf(512, 384, 256, kF32, true),
      LayerOf(4096, 3072, 768, DType::kBFloat16),
      ProductOf(Spec({300, 1000}, kF16, {1, 304}), Spec({1000, 1001}, kF16, {1008, 1})),
      ProductOf(Spec({300, 1002}, kF16), Spec({1002, 1004}, kF16)),
      ProductOf(Spec({300, 1001}, kF16), Spec({1001, 999}, kF16))};
  for (const char* target :
       {"cuda:sm_80", "cuda:sm_86", "cuda:sm_89", "cuda:sm_120", "cuda:sm_90a"}) {
    for (const OpSignature& signature : signatures)
      ExpectFits(signature, Candidates(signature, MmaDevice(Gpu(target))).front(), target);
  }
}

TEST_F(ProductMmaNvrtc, EveryTileCompiles) {
  for (const char* target : {"cuda:sm_80", "cuda:sm_89"}) {
    const MmaDevice device(Gpu(target));
    for (const int64_t n : {64, 128, 256}) {
      const OpSignature signature = LayerOf(1000, 1000, 1000, kF16);
      ExpectFits(signature, WriteHalfMma(*ReadContraction(signature), {n, 2}, device), target);
    }
  }
}

TEST(ProductMma, IsMadeForGpusWithoutWgmma) {
  const OpSignature signature = LayerOf(512, 384, 256, DType::kBFloat16);
  for (const char* target : {"cuda:sm_80", "cuda:sm_86", "cuda:sm_89", "cuda:sm_120"}) {
    EXPECT_TRUE(IsMmaTarget(target));
    EXPECT_TRUE(CanGenerate(signature, target).ok());
    EXPECT_TRUE(GeneratesHeavyOps(target));
    const auto search = MakeProductSearch(signature, Gpu(target));
    ASSERT_TRUE(search.ok()) << search.status().ToString();
    EXPECT_EQ((*search)->Next()->params["mma"], "sync");
  }
  for (const char* target : {"cuda:sm_75", "cuda:sm_90a", "cuda:sm_100a"})
    EXPECT_FALSE(IsMmaTarget(target));
  const auto hopper = MakeProductSearch(signature, Gpu("cuda:sm_90a"));
  ASSERT_TRUE(hopper.ok());
  EXPECT_FALSE((*hopper)->Next()->params.contains("mma"));
}

TEST(ProductMma, StagesFillTheSharedMemory) {
  const OpSignature f32 = LayerOf(512, 384, 256, kF32, true),
                    half = LayerOf(4096, 3072, 768, DType::kBFloat16);
  const auto bytes = [](const OpSignature& signature, const char* target) {
    const Candidate candidate = Candidates(signature, MmaDevice(Gpu(target))).front();
    return candidate.plan.launches[signature.inputs[0].dtype == kF32 ? 1 : 0]
        .dynamic_shared_bytes.Evaluate(signature)
        .value();
  };
  EXPECT_EQ(bytes(f32, "cuda:sm_80"), 5 * 32768);
  EXPECT_EQ(bytes(f32, "cuda:sm_89"), 3 * 32768);
  EXPECT_EQ(bytes(half, "cuda:sm_80"), 5 * 16384);
  EXPECT_EQ(bytes(half, "cuda:sm_89"), 3 * 16384);
}

// A device that does not report its shared memory gets what all have.
TEST(ProductMma, UnknownSharedMemoryIsTheLeast) {
  DeviceArch arch;
  arch.multiprocessors = 7;
  const MmaDevice device(arch);
  EXPECT_EQ(device.multiprocessors, 7);
  EXPECT_EQ(device.block_bytes, 99 << 10);
  EXPECT_EQ(device.all_bytes, 100 << 10);
}

TEST(ProductMma, SmallProductsHaveSmallTilesOrParts) {
  const MmaDevice device(Gpu("cuda:sm_80"));
  const auto first = [&](int64_t m, int64_t k, int64_t n) {
    const Contraction c =
        *ReadContraction(ProductOf(Spec({m, k}, DType::kBFloat16), Spec({k, n}, DType::kBFloat16)));
    return HalfMmaSchedules(c, device).front();
  };
  EXPECT_EQ(first(8192, 4096, 8192).parts, 1);
  EXPECT_EQ(first(1024, 768, 1024).n, 128);
  EXPECT_EQ(first(768, 768, 768).n, 64);
  EXPECT_GT(first(256, 16384, 256).parts, 8);
}

// Where rows begin decides how they are copied.
TEST(ProductMma, CopiesRowsWhereverTheyBegin) {
  const auto bytes = [](int64_t k) {
    const OpSignature signature = ProductOf(Spec({512, k}, kF16), Spec({k, 384}, kF16));
    EXPECT_TRUE(CanGenerateProduct(signature, "cuda:sm_80").ok());
    const MmaDevice device(Gpu("cuda:sm_80"));
    const std::string code = Candidates(signature, device).front().source.code;
    const size_t at = code.find("kACopy = ");
    return code.substr(at + 9, code.find(' ', at + 9) - at - 9);
  };
  EXPECT_EQ(bytes(504), "16");
  EXPECT_EQ(bytes(508), "8");
  EXPECT_EQ(bytes(502), "4");
  EXPECT_EQ(bytes(501), "2");
}

}  // namespace
}  // namespace cudaforge::tiles
