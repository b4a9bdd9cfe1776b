#include "verify/screen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <set>

#include "base/random.h"
#include "tests/cpp/verify/cuda_on_host.h"
#include "tests/cpp/verify/spec.h"
#include "verify/device/screen_kernels.cu"
#include "verify/elements.h"
#include "verify/screen_passes.h"

namespace cudaforge {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr DType kEveryDType[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                 DType::kFloat64, DType::kInt64,   DType::kInt32,
                                 DType::kBool};

using Maker = std::function<double(int64_t index)>;

std::string Made(const TensorSpec& spec, const Maker& value) {
  std::string bytes(static_cast<size_t>(spec.StorageBytes()), '\x5a');
  for (ElementWalk walk(spec); !walk.done(); walk.Next()) {
    StoreElement(spec.dtype, value(walk.index()),
                 bytes.data() + walk.offset() * DTypeSize(spec.dtype));
  }
  return bytes;
}

ScreenResult Screened(const TensorSpec& spec, const std::string& aten, const std::string& candidate,
                      Match match = Match::kTolerance) {
  const auto memory = MakeCpuMemory();
  return Screen(*memory, {spec, aten.data(), candidate.data(), match, {}}).value();
}

// The counts and bands of a plain loop in double precision.
struct Plain {
  Plain(const TensorSpec& spec, const std::string& aten, const std::string& candidate,
        Match match) {
    const auto size = static_cast<size_t>(DTypeSize(spec.dtype));
    for (ElementWalk walk(spec); !walk.done(); walk.Next()) {
      const char* const a = aten.data() + static_cast<size_t>(walk.offset()) * size;
      const char* const c = candidate.data() + static_cast<size_t>(walk.offset()) * size;
      const double x = LoadElement(spec.dtype, a);
      const double y = LoadElement(spec.dtype, c);
      const bool same = std::memcmp(a, c, size) == 0;
      const bool numbers = IsFloating(spec.dtype) && match != Match::kBitwise;
      if (!same && !(std::isnan(x) && std::isnan(y)) && !(numbers && x == y)) ++unequal;
      const bool finite = std::isfinite(x) && std::isfinite(y);
      if (!std::isfinite(x)) ++specials;
      const auto band = static_cast<size_t>(finite ? ScreenBand(spec.dtype, x) : 63);
      ++counts[band];
      if (!finite) {
        if (!(std::isnan(x) && std::isnan(y)) && x != y) ++mask_unequal;
        continue;
      }
      int octave = x == 0 ? 0 : std::ilogb(x);
      if (x != 0 && IsFloating(spec.dtype)) {
        octave = std::max(octave, spec.dtype == DType::kFloat16   ? -14
                                  : spec.dtype == DType::kFloat64 ? -1022
                                                                  : -126);
      }
      const double error = std::min(std::ldexp(std::fabs(y - x), -octave), 0x1p50);
      squares[band] += error * error;
      largest[band] = std::max(largest[band], error);
    }
  }
  int64_t unequal = 0;
  int64_t mask_unequal = 0;
  int64_t specials = 0;
  std::array<int64_t, kScreenBands> counts = {};
  std::array<double, kScreenBands> squares = {};
  std::array<double, kScreenBands> largest = {};
};

void ExpectAsPlain(const ScreenResult& found, const Plain& plain) {
  EXPECT_EQ(found.unequal, plain.unequal);
  EXPECT_EQ(found.mask_unequal, plain.mask_unequal);
  EXPECT_EQ(found.specials, plain.specials);
  for (size_t b = 0; b + 1 < kScreenBands; ++b) {
    EXPECT_EQ(found.bands[b].count, plain.counts[b]) << b;
    EXPECT_NEAR(found.bands[b].squares, plain.squares[b], 1e-3 * plain.squares[b]) << b;
    EXPECT_NEAR(found.bands[b].largest, plain.largest[b], 1e-6 * plain.largest[b]) << b;
  }
  EXPECT_EQ(found.bands[kScreenBands - 1].count, plain.counts[kScreenBands - 1]);
}

// Numbers of many octaves, with zeros of both signs, denormals, NaN and infinities.
double Mixed(DType dtype, SplitMix& random) {
  const uint64_t kind = random.Below(40);
  if (!IsFloating(dtype)) return static_cast<double>(random.Below(dtype == DType::kBool ? 2 : 9));
  if (kind == 0) return 0.0;
  if (kind == 1) return -0.0;
  if (kind == 2) return kNoNumber;
  if (kind == 3) return kInfinite;
  if (kind == 4) return -kInfinite;
  if (kind == 5) return (random.Uniform() - 0.5) * UlpOf(dtype, 0) * 100;
  const int range = dtype == DType::kFloat16 ? 12 : 60;
  return std::ldexp(random.Normal(), static_cast<int>(random.Below(2 * range)) - range);
}

struct Pair {
  std::string aten;
  std::string candidate;
};

Pair MixedPair(const TensorSpec& spec, uint64_t seed) {
  SplitMix random(seed);
  std::vector<double> aten(static_cast<size_t>(spec.numel()));
  for (double& value : aten) value = Mixed(spec.dtype, random);
  const auto at = [&](int64_t i) { return aten[static_cast<size_t>(i)]; };
  return {Made(spec, at), Made(spec, [&](int64_t i) {
            const uint64_t kind = random.Below(8);
            if (kind == 0) return Mixed(spec.dtype, random);
            return kind < 4 ? at(i) : at(i) * (1 + 1e-3 * random.Normal());
          })};
}

std::vector<TensorSpec> Specs(DType dtype) {
  return {Spec(dtype, {}),
          Spec(dtype, {1}),
          Spec(dtype, {1, 1, 1}, {5, 3, 7}),
          Spec(dtype, {3001}),
          Spec(dtype, {17, 40, 9}),
          Spec(dtype, {40, 17, 9}, {9, 360, 1}),  // dense, two dimensions exchanged
          Spec(dtype, {31, 40}, {64, 1}),         // rows apart
          Spec(dtype, {31, 40}, {2, 100}),        // every other element, transposed
          Spec(dtype, {3, 5, 7}, {2000, 0, 3}),   // repeated
          Spec(dtype, {2, 3, 2, 5, 2, 2, 3, 2}, {5000, 1500, 700, 120, 50, 20, 5, 2})};
}

TEST(Screen, AgreesWithAPlainLoop) {
  for (const DType dtype : kEveryDType) {
    for (const TensorSpec& spec : Specs(dtype)) {
      const Pair pair = MixedPair(spec, 3);
      for (const Match match : {Match::kTolerance, Match::kEqual, Match::kBitwise}) {
        SCOPED_TRACE(std::string(DTypeName(dtype)) + Json(spec.sizes).dump());
        ExpectAsPlain(Screened(spec, pair.aten, pair.candidate, match),
                      Plain(spec, pair.aten, pair.candidate, match));
      }
    }
  }
}

TEST(Screen, TheRulesOfEquality) {
  const TensorSpec spec = Spec(DType::kFloat32, {4});
  const std::string aten = Made(spec, [](int64_t i) { return i == 1 ? 0.0 : kNoNumber; });
  std::string other = Made(spec, [](int64_t i) { return i == 1 ? -0.0 : kNoNumber; });
  other[0] ^= 1;  // a NaN of other bits
  EXPECT_EQ(Screened(spec, aten, other, Match::kTolerance).unequal, 0);
  EXPECT_EQ(Screened(spec, aten, other, Match::kEqual).unequal, 0);
  const ScreenResult bitwise = Screened(spec, aten, other, Match::kBitwise);
  EXPECT_EQ(bitwise.unequal, 1);
  EXPECT_EQ(bitwise.first_unequal, 1);
  ASSERT_EQ(bitwise.worst.size(), 1u);
  EXPECT_EQ(bitwise.worst[0].index, 1);
  EXPECT_EQ(bitwise.worst[0].error, 0);
  EXPECT_EQ(bitwise.specials, 3);
  const TensorSpec flags = Spec(DType::kBool, {3});
  EXPECT_EQ(Screened(flags, {0, 1, 1}, {0, 1, 2}).first_unequal, 2);
  const TensorSpec large = Spec(DType::kInt64, {2});
  const int64_t a[] = {1, int64_t{1} << 60};
  const int64_t c[] = {1, (int64_t{1} << 60) + 1};  // equal as doubles
  const auto memory = MakeCpuMemory();
  const ScreenResult result = Screen(*memory, {large, a, c, Match::kTolerance, {}}).value();
  EXPECT_EQ(result.unequal, 1);
  EXPECT_EQ(result.worst.size(), 1u);
}

TEST(Screen, MasksAndTheirPlaces) {
  const TensorSpec spec = Spec(DType::kFloat16, {100, 50}, {1, 100});  // transposed
  const Maker plain = [](int64_t i) { return i == 77 ? kInfinite : 1.0; };
  const std::string aten = Made(spec, plain);
  for (const double value : {kNoNumber, -kInfinite, 1.0}) {
    const ScreenResult result =
        Screened(spec, aten, Made(spec, [&](int64_t i) { return i == 77 ? value : plain(i); }));
    EXPECT_EQ(result.mask_unequal, 1);
    EXPECT_EQ(result.first_mask_unequal, 77);
    EXPECT_EQ(result.unequal, 1);
    EXPECT_EQ(result.specials, 1);
    ASSERT_EQ(result.worst.size(), 1u);
    EXPECT_EQ(result.worst[0].index, 77);
    EXPECT_EQ(result.worst[0].error, kInfinite);
    EXPECT_EQ(result.worst[0].aten, kInfinite);
  }
}

bool Names(const ScreenResult& result, int64_t index) {
  return std::any_of(result.worst.begin(), result.worst.end(),
                     [&](const Worst& worst) { return worst.index == index; });
}

TEST(Screen, OneWrongElementInTenMillionIsAmongTheWorst) {
  constexpr int64_t kCount = 10'000'000;
  const TensorSpec spec = Spec(DType::kFloat32, {kCount});
  std::vector<float> aten(kCount);
  std::vector<float> candidate(kCount);
  SplitMix random(5);
  for (size_t i = 0; i < kCount; ++i) {
    aten[i] = static_cast<float>(random.Normal());
    candidate[i] = aten[i] * (1 + static_cast<float>(random.Normal()) * 1e-6f);
  }
  aten[7'654'321] = 3e-9f;  // tiny, and all wrong
  candidate[7'654'321] = 0;
  candidate[1'234'567] *= 1.00002f;  // a little more wrong than its neighbours
  aten[9'999'999] = 2.5f;
  candidate[9'999'999] = std::nanf("");
  const auto memory = MakeCpuMemory();
  const ScreenResult result =
      Screen(*memory, {spec, aten.data(), candidate.data(), Match::kTolerance, {}}).value();
  EXPECT_EQ(result.elements, kCount);
  EXPECT_LE(result.worst.size(), 64u);
  EXPECT_GE(result.worst.size(), 60u);
  EXPECT_TRUE(Names(result, 7'654'321));
  EXPECT_TRUE(Names(result, 1'234'567));
  EXPECT_TRUE(Names(result, 9'999'999));
  std::set<int64_t> parts;
  for (const Worst& worst : result.worst) parts.insert(worst.index / 4096);
  EXPECT_GT(parts.size(), 50u) << "spread over the tensor";
  for (size_t i = 1; i < result.worst.size(); ++i) {
    EXPECT_LE(result.worst[i].relative, result.worst[i - 1].relative);
  }
}

TEST(Screen, WrongThroughoutNamesElementsOfManyParts) {
  const TensorSpec spec = Spec(DType::kFloat32, {1 << 20});
  const std::string aten = Made(spec, [](int64_t) { return 1.0; });
  const ScreenResult result =
      Screened(spec, aten, Made(spec, [](int64_t i) { return i < 100 ? 9.0 : 2.0; }));
  EXPECT_EQ(result.unequal, 1 << 20);
  EXPECT_EQ(result.worst.size(), 16u);
  EXPECT_EQ(result.worst[0].index, 0);
  EXPECT_EQ(result.worst[0].error, 8);
  EXPECT_EQ(result.worst[1].error, 1) << "of another part of the tensor";
}

TEST(Screen, BytesBetweenElements) {
  const auto memory = MakeCpuMemory();
  const TensorSpec spec = Spec(DType::kFloat32, {31, 40}, {2, 100});
  const int64_t bytes = spec.StorageBytes();
  std::string aten(static_cast<size_t>(bytes), '\0');
  ScreenRequest request{spec, aten.data(), nullptr, Match::kTolerance, {}};
  request.gaps = GapFill{FillPattern::kBytes, 9, DType::kFloat32};
  std::string candidate = aten;
  ASSERT_TRUE(memory->Fill(candidate.data(), bytes, FillPattern::kBytes, 9).ok());
  for (ElementWalk walk(spec); !walk.done(); walk.Next()) {
    StoreElement(spec.dtype, 0, candidate.data() + walk.offset() * 4);
  }
  request.candidate = candidate.data();
  ScreenResult result = Screen(*memory, request).value();
  EXPECT_EQ(result.unequal, 0);
  EXPECT_TRUE(result.gaps_checked);
  EXPECT_EQ(result.gaps.changed, 0);
  candidate[4 * 61 + 2] ^= 4;  // behind the first column's 31 elements of every other place
  candidate[4 * 101] ^= 4;     // between two elements of the second
  result = Screen(*memory, request).value();
  EXPECT_EQ(result.gaps.changed, 2);
  EXPECT_EQ(result.gaps.first, 4 * 61 + 2);
  request.spec = Spec(DType::kFloat32, {31, 40}, {1, 1});  // elements share places
  EXPECT_FALSE(Screen(*memory, request)->gaps_checked);
}

TEST(Screen, NothingToCompare) {
  const ScreenResult result = Screened(Spec(DType::kFloat32, {0, 5}), "", "");
  EXPECT_EQ(result.elements, 0);
  EXPECT_EQ(result.first_unequal, -1);
  EXPECT_TRUE(result.worst.empty());
}

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
  // 20 tiles, more than a band has picks; the last dimension is every other place.
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
    memory_ = MakeCudaMemory(*std::move(kernels), {}).value();
    space_ = MakeCudaMemory(OwnKernels::Create(0, {}).value(), {}).value();
  }
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<DeviceMemory> space_;  // whose scratch memory holds the tensors
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
