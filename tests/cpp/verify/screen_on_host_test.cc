#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "tests/cpp/verify/cuda_on_host.h"
#include "tests/cpp/verify/screen_cases.h"
#include "verify/device/screen_bands.cu"
#include "verify/device/screen_kernels.cu"
#include "verify/screen_passes.h"

namespace cudaforge {
namespace {

device::ScreenArgs ArgsOf(const TensorSpec& spec, const WalkOrder& order, const void* aten,
                          const void* candidate) {
  device::ScreenArgs args;
  args.aten = aten;
  args.candidate = candidate;
  args.n = static_cast<uint64_t>(spec.numel());
  args.tile_size = device::TileSize(args.n);
  args.tiles = (args.n + args.tile_size - 1) / args.tile_size;
  args.layout = order.layout();
  args.kind = static_cast<device::ElementKind>(spec.dtype);
  args.bitwise = 1;
  return args;
}

using ScreenKernel = void (*)(device::ScreenArgs);
constexpr ScreenKernel kScreenKernels[] = {screen_float32, screen_float16, screen_bfloat16,
                                           screen_float64, screen_int64,   screen_int32,
                                           screen_bool};

// `merged`: by the kernel as well.
ScreenPass KernelPass(device::ScreenArgs args, bool merged) {
  const size_t entries = args.tiles * device::kBands;
  std::vector<uint64_t> keys(entries);
  std::vector<float> squares(entries);
  std::vector<uint32_t> counts(entries);
  ScreenPass pass;
  pass.bands.resize(device::kBands);
  args.keys = keys.data();
  args.squares = squares.data();
  args.counts = counts.data();
  args.totals = &pass.totals;
  args.bands = pass.bands.data();
  on_host::Launch(kScreenKernels[static_cast<size_t>(args.kind)], static_cast<unsigned>(args.tiles),
                  device::kScreenThreads, args);
  if (merged) {
    on_host::Launch(screen_merge, device::kBands, device::kMergeThreads, args);
  } else {
    pass.bands = MergeTiles(args);
  }
  return pass;
}

void ExpectSamePass(const ScreenPass& found, const ScreenPass& expected) {
  EXPECT_EQ(found.totals.unequal, expected.totals.unequal);
  EXPECT_EQ(found.totals.first_unequal, expected.totals.first_unequal);
  EXPECT_EQ(found.totals.mask_unequal, expected.totals.mask_unequal);
  EXPECT_EQ(found.totals.first_mask_unequal, expected.totals.first_mask_unequal);
  EXPECT_EQ(found.totals.specials, expected.totals.specials);
  for (size_t b = 0; b < found.bands.size(); ++b) {
    const device::BandSums& is = found.bands[b];
    const device::BandSums& want = expected.bands[b];
    EXPECT_EQ(is.count, want.count) << b;
    EXPECT_NEAR(is.squares, want.squares, 1e-3 * want.squares) << b;
    for (int p = 0; p < device::kPicksPerBand; ++p) {
      EXPECT_EQ(is.picks[p].number, want.picks[p].number) << b << " " << p;
      EXPECT_EQ(is.picks[p].tile, want.picks[p].tile);
      EXPECT_EQ(is.picks[p].error, want.picks[p].error);
      const double values[] = {is.picks[p].aten, is.picks[p].candidate};
      const double wanted[] = {want.picks[p].aten, want.picks[p].candidate};
      EXPECT_EQ(std::memcmp(values, wanted, sizeof(values)), 0);
    }
  }
}

TEST(ScreenKernelsOnHost, AgreeWithTheCpu) {
  for (const DType dtype : kEveryDType) {
    for (const TensorSpec& spec : {Spec(dtype, {3001}), Spec(dtype, {31, 40}, {2, 100})}) {
      SCOPED_TRACE(DTypeName(dtype));
      const Pair pair = MixedPair(spec, 8);
      const WalkOrder order = WalkOrder::Of(spec).value();
      // Aligned to 16 bytes and not.
      for (const size_t offset : {size_t{0}, static_cast<size_t>(DTypeSize(dtype))}) {
        std::string aten(offset, '\0');
        std::string candidate(offset, '\0');
        aten += pair.aten;
        candidate += pair.candidate;
        const device::ScreenArgs args =
            ArgsOf(spec, order, aten.data() + offset, candidate.data() + offset);
        ExpectSamePass(KernelPass(args, false), CpuScreenPass(args));
      }
    }
  }
}

TEST(ScreenKernelsOnHost, MergeTilesAsTheCpu) {
  // 20 tiles, more than a band's picks; the last dimension has stride 2.
  const TensorSpec spec = Spec(DType::kBFloat16, {5, 1000}, {3000, 2});
  const Pair pair = MixedPair(spec, 4);
  const WalkOrder order = WalkOrder::Of(spec).value();
  const device::ScreenArgs args = ArgsOf(spec, order, pair.aten.data(), pair.candidate.data());
  ExpectSamePass(KernelPass(args, true), CpuScreenPass(args));
}

TEST(ScreenKernelsOnHost, GapsAsTheCpu) {
  const TensorSpec spec = Spec(DType::kFloat16, {7, 9}, {40, 3});
  const std::string data = Made(spec, [](int64_t) { return 1.0; });
  const WalkOrder order = WalkOrder::Of(spec).value();
  const auto slots = static_cast<uint64_t>(spec.StorageBytes() / 2);
  const device::FillRule rule = RuleOf(FillPattern::kZero, DType::kFloat32);
  const FillDamage expected = CpuGaps(data.data(), slots, 2, order.layout(), rule, 1);
  EXPECT_EQ(expected.changed, spec.StorageBytes() - 2 * spec.numel());
  EXPECT_EQ(expected.first, 2);
  unsigned long long damage[2] = {0, ~0ull};
  on_host::Launch(check_gaps, 3, 32, reinterpret_cast<const unsigned char*>(data.data()), slots, 2,
                  order.layout(), rule, uint64_t{1}, &damage[0]);
  EXPECT_EQ(damage[0], static_cast<uint64_t>(expected.changed));
  EXPECT_EQ(damage[1], static_cast<uint64_t>(expected.first));
}

class GpuScreen : public testing::Test {
 protected:
  void SetUp() override {
    if (!cu::DriverApi::Get().ok()) GTEST_SKIP() << "needs a GPU";
    auto kernels = OwnKernels::Create(0, {});
    ASSERT_TRUE(kernels.ok()) << kernels.status().ToString();
    memory_ = MakeCudaMemory(*std::move(kernels));
    space_ = MakeCudaMemory(OwnKernels::Create(0, {}).value());
  }
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<DeviceMemory> space_;  // its scratch memory holds the tensors
};

TEST_F(GpuScreen, AgreesWithTheCpuInEveryRun) {
  for (const DType dtype : kEveryDType) {
    std::vector<TensorSpec> specs = Specs(dtype);
    specs.push_back(Spec(dtype, {1000, 3001}));
    for (const TensorSpec& spec : specs) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + Json(spec.sizes).dump());
      const Pair pair = MixedPair(spec, 12);
      const int64_t bytes = spec.StorageBytes();
      const int64_t padded = (bytes + 64) / 16 * 16;
      for (const int64_t offset : {int64_t{0}, DTypeSize(dtype)}) {
        auto* const base = static_cast<char*>(space_->Scratch(2 * padded + 64).value()) + offset;
        ASSERT_TRUE(memory_->CopyFromHost(base, pair.aten.data(), bytes).ok());
        ASSERT_TRUE(memory_->CopyFromHost(base + padded, pair.candidate.data(), bytes).ok());
        const WalkOrder order = WalkOrder::Of(spec).value();
        const device::ScreenArgs args = ArgsOf(spec, order, base, base + padded);
        const ScreenPass expected =
            CpuScreenPass(ArgsOf(spec, order, pair.aten.data(), pair.candidate.data()));
        const ScreenPass first = CudaScreenPass(*memory_, args).value();
        ExpectSamePass(first, expected);
        const ScreenPass second = CudaScreenPass(*memory_, args).value();
        for (size_t b = 0; b < first.bands.size(); ++b) {
          EXPECT_EQ(first.bands[b].squares, second.bands[b].squares);
        }
        if (!order.nested() || order.layout().IsDense()) continue;
        const auto size = static_cast<int>(DTypeSize(dtype));
        const auto slots = static_cast<uint64_t>(bytes / size);
        const device::FillRule rule = RuleOf(FillPattern::kBytes, dtype);
        const FillDamage gaps =
            CudaGaps(*memory_, base + padded, slots, size, order.layout(), rule, 5).value();
        const FillDamage wanted =
            CpuGaps(pair.candidate.data(), slots, size, order.layout(), rule, 5);
        EXPECT_EQ(gaps.changed, wanted.changed);
        EXPECT_EQ(gaps.first, wanted.first);
      }
    }
  }
}

}  // namespace
}  // namespace cudaforge
