#include "verify/screen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/random.h"
#include "tests/cpp/verify/screen_cases.h"

namespace cudaforge {
namespace {

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

TEST(Screen, EqualityRules) {
  const TensorSpec spec = Spec(DType::kFloat32, {4});
  const std::string aten = Made(spec, [](int64_t i) { return i == 1 ? 0.0 : kNoNumber; });
  std::string other = Made(spec, [](int64_t i) { return i == 1 ? -0.0 : kNoNumber; });
  other[0] ^= 1;  // a NaN with other bits
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

TEST(Screen, MaskDifferences) {
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
  candidate[1'234'567] *= 1.00002f;  // slightly more wrong than its neighbours
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

TEST(Screen, WorstElementsComeFromManyParts) {
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
  candidate[4 * 61 + 2] ^= 4;  // after the first column's 31 elements of stride 2
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

}  // namespace
}  // namespace cudaforge
