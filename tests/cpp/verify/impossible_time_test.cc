#include "verify/impossible_time.h"

#include <gtest/gtest.h>

#include "tests/cpp/verify/spec.h"

namespace cudaforge {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// 1000 bytes a microsecond, behind 1 MiB of cache.
DeviceArch SlowGpu() {
  DeviceArch arch;
  arch.target = "cuda:sm_90";
  arch.l2_bytes = kMiB;
  arch.memory_clock_khz = 500'000;
  arch.memory_bus_bits = 8;
  return arch;
}

OpSignature RegionOfOne(const char* op, TensorSpec input, Json args, TensorSpec output) {
  OpSignature region;
  region.device = DeviceType::kCuda;
  region.inputs = {std::move(input)};
  region.nodes.resize(1);
  region.nodes[0].op = op;
  region.nodes[0].args = std::move(args);
  region.nodes[0].outputs = {std::move(output)};
  region.outputs = {{0, 0}};
  return region;
}

// Reads 4 MiB and writes 4 MiB.
OpSignature LargeSoftmax() {
  const TensorSpec x = Spec(DType::kFloat32, {1024, 1024});
  return RegionOfOne("aten::_softmax", x, {{{"in", 0}}, -1, false}, x);
}

TEST(JudgeTime, BelowHalfOfTheDataSheet) {
  const double least_ns = static_cast<double>(7 * kMiB);
  EXPECT_TRUE(JudgeTime(LargeSoftmax(), SlowGpu(), least_ns).accepted());
  EXPECT_TRUE(JudgeTime(LargeSoftmax(), SlowGpu(), 0.51 * least_ns).accepted());
  const Verdict verdict = JudgeTime(LargeSoftmax(), SlowGpu(), 0.49 * least_ns);
  EXPECT_EQ(verdict.kind, VerdictKind::kImpossibleTime);
  EXPECT_EQ(verdict.evidence["bytes"], 7 * kMiB);
  EXPECT_NEAR(verdict.evidence["least_us"].get<double>(), least_ns / 1e3, 1e-6);
}

TEST(JudgeTime, OnlyBeyondTheCache) {
  DeviceArch arch = SlowGpu();
  arch.l2_bytes = 8 * kMiB;
  EXPECT_TRUE(JudgeTime(LargeSoftmax(), arch, 1).accepted());
}

TEST(JudgeTime, OnlyWhereTheMemoryIsKnown) {
  DeviceArch arch = SlowGpu();
  arch.memory_clock_khz.reset();
  EXPECT_TRUE(JudgeTime(LargeSoftmax(), arch, 1).accepted());
  arch = SlowGpu();
  arch.target = "cpu:x86_64";
  EXPECT_TRUE(JudgeTime(LargeSoftmax(), arch, 1).accepted());
}

// Inputs that need not be read do not count, only outputs: 8 MiB here, minus the cache.
TEST(JudgeTime, PartiallyReadInputsDoNotCount) {
  const TensorSpec y = Spec(DType::kFloat32, {1024, 2048});
  const double least_ns = static_cast<double>(7 * kMiB);
  const OpSignature full =
      RegionOfOne("aten::full_like", Spec(DType::kFloat32, {1024, 2048}), {{{"in", 0}}, 1}, y);
  EXPECT_TRUE(JudgeTime(full, SlowGpu(), 0.51 * least_ns).accepted());
  EXPECT_FALSE(JudgeTime(full, SlowGpu(), 0.49 * least_ns).accepted());
  const OpSignature pool =
      RegionOfOne("aten::max_pool2d_with_indices", Spec(DType::kFloat32, {64, 16, 64, 64}),
                  {{{"in", 0}}, {1, 1}, {8, 8}}, Spec(DType::kFloat32, {64, 16, 8, 8}));
  EXPECT_TRUE(JudgeTime(pool, SlowGpu(), 1).accepted()) << "256 KiB are written, within the cache";
  OpSignature loss =
      RegionOfOne("aten::nll_loss_forward", Spec(DType::kFloat32, {1024, 65536}),
                  {{{"in", 0}}, {{"in", 1}}, nullptr, 1, -100}, Spec(DType::kFloat32, {}));
  loss.inputs.push_back(Spec(DType::kFloat32, {1024}));
  EXPECT_TRUE(JudgeTime(loss, SlowGpu(), 1).accepted()) << "of a row one number is needed";
}

}  // namespace
}  // namespace cudaforge
