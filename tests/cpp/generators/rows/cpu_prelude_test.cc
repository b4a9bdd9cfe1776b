#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/cpp/generators/cpu_kernel.h"

namespace cudaforge::rows {
namespace {

using S = ScalarOp;

Schedule Rows() { return {.mapping = Mapping::kRow}; }

TEST(CpuPrelude, HalfTypesConvertExactly) {
  const int64_t n = 65536;
  std::vector<uint16_t> bits(n), brain(n), half(n);
  for (int64_t i = 0; i < n; ++i) bits[i] = static_cast<uint16_t>(i);
  std::vector<float> wide_brain(n), wide_half(n);
  StageBuilder b({}, {n});
  const int from_brain = b.Load(0, {}, {1}, DType::kBFloat16),
            from_half = b.Load(1, {}, {1}, DType::kFloat16);
  b.Store(0, from_brain, {}, {1}, DType::kBFloat16);
  b.Store(1, from_half, {}, {1}, DType::kFloat16);
  b.Store(2, from_brain, {}, {1});
  b.Store(3, from_half, {}, {1});
  CpuKernelUnderTest(b.stage(), Rows())
      .Run({bits.data(), bits.data()},
           {brain.data(), half.data(), wide_brain.data(), wide_half.data()});
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t word = static_cast<uint32_t>(i) << 16;
    float want;
    std::memcpy(&want, &word, 4);
    const int exponent = i >> 10 & 31, mantissa = i & 1023;
    double value =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) value = mantissa != 0 ? NAN : INFINITY;
    if (i & 0x8000) value = -value;
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(wide_brain[i]) && (brain[i] & 0x7fff) > 0x7f80);
    } else {
      ASSERT_EQ(wide_brain[i], want);
      ASSERT_EQ(brain[i], i);
    }
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(wide_half[i]) && (half[i] & 0x7fff) > 0x7c00);
    } else {
      ASSERT_EQ(wide_half[i], value);
      ASSERT_EQ(half[i], i);
    }
  }
}

TEST(CpuPrelude, StoresRoundHalvesToNearestEven) {
  // Halfway between neighbours, slightly off it, the largest finite values, denormals.
  const std::vector<float> x = {1.00048828125f, 1.00146484375f, 1.0004884f,      65519.996f,
                                65520.0f,       0x1p-25f,       0x1.000002p-25f, 0x1.8p-24f,
                                -0x1p-26f,      kInf,           1e-8f,           3.3895e38f};
  const std::vector<uint16_t> half = {0x3c00, 0x3c02, 0x3c01, 0x7bff, 0x7c00, 0,
                                      1,      2,      0x8000, 0x7c00, 0,      0x7c00};
  const std::vector<uint16_t> brain = {0x3f80, 0x3f80, 0x3f80, 0x4780, 0x4780, 0x3300,
                                       0x3300, 0x33c0, 0xb280, 0x7f80, 0x322c, 0x7f7f};
  StageBuilder b({}, {static_cast<int64_t>(x.size())});
  const int v = b.Load(0, {}, {1});
  b.Store(0, v, {}, {1}, DType::kFloat16);
  b.Store(1, v, {}, {1}, DType::kBFloat16);
  std::vector<uint16_t> got_half(x.size()), got_brain(x.size());
  CpuKernelUnderTest(b.stage(), Rows()).Run({x.data()}, {got_half.data(), got_brain.data()});
  EXPECT_EQ(got_half, half);
  EXPECT_EQ(got_brain, brain);
}

// The largest error of `op` in ulps of the true value, over the floats of [low, high].
double WorstUlps(ScalarOp op, double (*exact)(double), float low, float high) {
  const int64_t n = 400000;
  std::vector<float> x(n), y(n);
  std::mt19937 generator(9);
  std::uniform_real_distribution<float> uniform(low, high);
  for (int64_t i = 0; i < n; ++i) {
    x[i] = uniform(generator);
    // Spreads half of them over the exponents in range.
    const float small = std::ldexp(x[i], -static_cast<int>(generator() % 40));
    if (i % 2 == 0 && small >= low && small <= high) x[i] = small;
  }
  const float special[] = {0.0f,    -0.0f, kInf,   -kInf, kNan, 1e-40f,
                           -1e-40f, 3e38f, -3e38f, 1.0f,  -1.0f};
  std::copy(std::begin(special), std::end(special), x.begin());
  StageBuilder b({}, {n});
  b.Store(0, b.Op(op, {b.Load(0, {}, {1})}), {}, {1});
  CpuKernelUnderTest(b.stage(), Rows()).Run({x.data()}, {y.data()});
  double worst = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double want = exact(x[i]);
    const float rounded = static_cast<float>(want);
    if (std::isnan(want) || std::isinf(rounded)) {
      const bool same = std::isnan(want) ? std::isnan(y[i]) : y[i] == rounded;
      EXPECT_TRUE(same) << "f(" << x[i] << ") = " << y[i] << ", not " << rounded;
      continue;
    }
    const double ulp = std::max(std::ldexp(1.0, -149),
                                std::ldexp(1.0, std::ilogb(want == 0 ? 1e-300 : want) - 23));
    const double error = std::abs(y[i] - want) / ulp;
    EXPECT_LT(error, 3) << "f(" << x[i] << ") = " << y[i] << ", not " << want;
    if (!(error < 3)) break;
    worst = std::max(worst, error);
  }
  return worst;
}

TEST(CpuPrelude, FunctionsAreWithinTwoUlps) {
  EXPECT_LT(WorstUlps(
                S::kExp, [](double x) { return std::exp(x); }, -110, 90),
            1.1);
  EXPECT_LT(WorstUlps(
                S::kExpm1, [](double x) { return std::expm1(x); }, -25, 90),
            1.6);
  EXPECT_LT(WorstUlps(
                S::kLog, [](double x) { return std::log(x); }, 0, 3e38f),
            1.2);
  EXPECT_LT(WorstUlps(
                S::kLog, [](double x) { return std::log(x); }, 0, 4),
            1.2);
  EXPECT_LT(WorstUlps(
                S::kLog1p, [](double x) { return std::log1p(x); }, -1, 10),
            1.6);
  EXPECT_LT(WorstUlps(
                S::kLog2, [](double x) { return std::log2(x); }, 0, 100),
            1.6);
  EXPECT_LT(WorstUlps(
                S::kTanh, [](double x) { return std::tanh(x); }, -12, 12),
            1.6);
  EXPECT_LT(WorstUlps(
                S::kErf, [](double x) { return std::erf(x); }, -5, 5),
            1.6);
  EXPECT_LT(WorstUlps(
                S::kSigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 100),
            2.6);
}

}  // namespace
}  // namespace cudaforge::rows
