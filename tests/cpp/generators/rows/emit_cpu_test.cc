#include <cmath>
#include <limits>
#include <random>

#include "tests/cpp/generators/cpu_kernel.h"

namespace cudaforge::rows {
namespace {

using S = ScalarOp;
using R = ReduceOp;

std::vector<float> Normal(int64_t n, unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(generator);
  return x;
}

void ExpectNear(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << "at " << i;
    } else {
      ASSERT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::abs(want[i]))) << "at " << i;
    }
  }
}

Schedule Map(Mapping mapping, int vector = 64, int items = 4) {
  return {.mapping = mapping, .vector = vector, .items = items};
}

// Rows of `length` elements with stride `step`; row r starts at r * row_step.
Stage Softmax(int64_t rows, int64_t length, int64_t row_step, int64_t step) {
  StageBuilder b({rows}, {length});
  const int x = b.Load(0, {row_step}, {step});
  const int e = b.Op(S::kExp, {b.Op(S::kSub, {x, b.Reduce(R::kMax, x)})});
  b.Store(0, b.Op(S::kDiv, {e, b.Reduce(R::kSum, e)}), {row_step}, {step});
  return b.stage();
}

TEST(Schedules, JsonListsUsedFields) {
  EXPECT_EQ(Map(Mapping::kBuffer).ToJson(DeviceType::kCpu), (Json{{"mapping", "buffer"}}));
  EXPECT_EQ(Map(Mapping::kColumn, 8, 2).ToJson(DeviceType::kCpu),
            (Json{{"mapping", "column"}, {"vector", 8}, {"items", 2}}));
  EXPECT_EQ(Map(Mapping::kWarp).ToJson(DeviceType::kCuda).size(), 5u);
}

TEST(EmitCpu, SoftmaxOfOddSizesInEveryMapping) {
  for (const int64_t length : {1, 3, 31, 33, 1000, 4099}) {
    const int64_t rows = 5;
    const std::vector<float> x = Normal(rows * length);
    for (const bool transposed : {false, true}) {
      const int64_t row_step = transposed ? 1 : length, step = transposed ? rows : 1;
      std::vector<double> want(x.size());
      for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t i = 0; i < length; ++i)
          sum += std::exp(static_cast<double>(x[r * row_step + i * step]));
        for (int64_t i = 0; i < length; ++i) {
          want[r * row_step + i * step] =
              std::exp(static_cast<double>(x[r * row_step + i * step])) / sum;
        }
      }
      for (Mapping mapping : {Mapping::kRow, Mapping::kBuffer, Mapping::kColumn}) {
        if (length > 33 && transposed == (mapping != Mapping::kColumn)) continue;
        SCOPED_TRACE(std::string(MappingName(mapping)) + " " + std::to_string(length));
        std::vector<float> y(x.size(), -7);
        CpuKernelUnderTest(Softmax(rows, length, row_step, step), Map(mapping, 4))
            .Run({x.data()}, {y.data()});
        ExpectNear(y, want, 3e-7);
      }
    }
  }
}

TEST(EmitCpu, NormalisationOfGroupsWithWeightsPerChannel) {
  const int64_t rows = 6, channels = 5, pixels = 49, length = channels * pixels;
  const std::vector<float> x = Normal(rows * length), w = Normal(channels, 2);
  StageBuilder b({rows}, {channels, pixels});
  const int v = b.Load(0, {length}, {pixels, 1});
  const int scale = b.Const(1.0 / length);
  const int mean = b.Op(S::kMul, {b.Reduce(R::kSum, v), scale});
  const int d = b.Op(S::kSub, {v, mean});
  const int variance = b.Op(S::kMul, {b.Reduce(R::kSum, b.Op(S::kMul, {d, d})), scale});
  const int r = b.Op(S::kRsqrt, {b.Op(S::kAdd, {variance, b.Const(1e-5)})});
  b.Store(0, b.Op(S::kMul, {b.Op(S::kMul, {d, r}), b.Load(1, {0}, {1, 0})}), {length}, {pixels, 1});
  b.Store(1, mean, {1}, {});
  std::vector<double> want(x.size()), means(rows);
  for (int64_t i = 0; i < rows; ++i) {
    double sum = 0, square = 0;
    for (int64_t j = 0; j < length; ++j) sum += x[i * length + j];
    means[i] = sum / length;
    for (int64_t j = 0; j < length; ++j) square += std::pow(x[i * length + j] - means[i], 2);
    for (int64_t j = 0; j < length; ++j) {
      want[i * length + j] =
          (x[i * length + j] - means[i]) / std::sqrt(square / length + 1e-5) * w[j / pixels];
    }
  }
  for (Mapping mapping : {Mapping::kRow, Mapping::kBuffer, Mapping::kColumn}) {
    SCOPED_TRACE(MappingName(mapping));
    std::vector<float> y(x.size()), m(rows);
    CpuKernelUnderTest(b.stage(), Map(mapping)).Run({x.data(), w.data()}, {y.data(), m.data()});
    ExpectNear(y, want, 1e-6);
    ExpectNear(m, means, 1e-7);
  }
}

TEST(EmitCpu, ExtremesPropagateNanAndFindTheFirst) {
  const int64_t rows = 6, length = 2500;
  std::vector<float> x = Normal(rows * length);
  x[1 * length + 2077] = x[1 * length + 2300] = kNan;
  x[2 * length + 1500] = x[2 * length + 100] = 50;
  x[3 * length + 7] = kInf;
  std::fill_n(x.begin() + 4 * length, length, -kInf);
  StageBuilder b({rows}, {length});
  const int v = b.Load(0, {length}, {1});
  const int shifted = b.Op(S::kMul, {v, b.Const(2)});
  const R reduces[] = {R::kMax, R::kMin, R::kArgMax, R::kArgMin};
  for (int k = 0; k < 2; ++k) b.Store(k, b.Reduce(reduces[k], shifted), {1}, {});
  for (int k = 2; k < 4; ++k) b.Store(k, b.Reduce(reduces[k], v), {1}, {}, DType::kInt64);
  for (Mapping mapping : {Mapping::kRow, Mapping::kColumn}) {
    SCOPED_TRACE(MappingName(mapping));
    std::vector<float> high(rows), low(rows);
    std::vector<int64_t> first(rows), last(rows);
    CpuKernelUnderTest(b.stage(), Map(mapping))
        .Run({x.data()}, {high.data(), low.data(), first.data(), last.data()});
    for (int64_t r = 0; r < rows; ++r) {
      int64_t want = 0, least = 0;
      for (int64_t i = 1; i < length; ++i) {
        const float* row = &x[r * length];
        if (!std::isnan(row[want]) && !(row[i] <= row[want])) want = i;
        if (!std::isnan(row[least]) && !(row[i] >= row[least])) least = i;
      }
      EXPECT_EQ(first[r], want);
      EXPECT_EQ(last[r], least);
      if (r == 1) {
        EXPECT_TRUE(std::isnan(high[r]) && std::isnan(low[r]));
      } else {
        EXPECT_EQ(high[r], 2 * x[r * length + want]);
        EXPECT_EQ(low[r], 2 * x[r * length + least]);
      }
    }
  }
}

TEST(EmitCpu, LongSumsStayAccurate) {
  const int64_t rows = 3, length = 300007;
  std::vector<float> x = Normal(rows * length);
  for (float& v : x) v = std::abs(v) + 1;
  for (const bool column : {false, true}) {
    const int64_t row_step = column ? 1 : length, step = column ? rows : 1;
    StageBuilder b({rows}, {length});
    b.Store(0, b.Reduce(R::kSum, b.Load(0, {row_step}, {step})), {1}, {});
    std::vector<float> y(rows);
    CpuKernelUnderTest(b.stage(), Map(column ? Mapping::kColumn : Mapping::kRow))
        .Run({x.data()}, {y.data()});
    for (int64_t r = 0; r < rows; ++r) {
      double want = 0;
      for (int64_t i = 0; i < length; ++i) want += x[r * row_step + i * step];
      EXPECT_NEAR(y[r], want, want * 1.2e-7);
    }
  }
}

TEST(EmitCpu, SumsOfDoublesAndProducts) {
  const int64_t rows = 4, length = 1003;
  const std::vector<float> seed = Normal(rows * length);
  std::vector<double> x(seed.begin(), seed.end());
  for (double& v : x) v = 1 + 1e-3 * v;
  StageBuilder b({rows}, {length});
  const int v = b.Load(0, {length}, {1}, DType::kFloat64);
  b.Store(0, b.Reduce(R::kSum, v), {1}, {}, DType::kFloat64);
  b.Store(1, b.Reduce(R::kProd, v), {1}, {}, DType::kFloat64);
  for (Mapping mapping : {Mapping::kRow, Mapping::kColumn}) {
    std::vector<double> sum(rows), product(rows);
    CpuKernelUnderTest(b.stage(), Map(mapping)).Run({x.data()}, {sum.data(), product.data()});
    for (int64_t r = 0; r < rows; ++r) {
      long double s = 0, p = 1;
      for (int64_t i = 0; i < length; ++i) s += x[r * length + i], p *= x[r * length + i];
      EXPECT_NEAR(sum[r], static_cast<double>(s), 1e-12);
      EXPECT_NEAR(product[r], static_cast<double>(p), 1e-12);
    }
  }
}

TEST(EmitCpu, ScansContinueOverTilesAndFeedLaterSweeps) {
  for (const int64_t length : {1, 3, 33, 1000, 4099}) {
    const int64_t rows = 3;
    const std::vector<float> x = Normal(rows * length);
    StageBuilder b({rows}, {length});
    const int scan = b.Scan(ScanOp::kSum, b.Op(S::kMul, {b.Load(0, {length}, {1}), b.Const(0.5)}));
    b.Store(0, b.Op(S::kAdd, {scan, b.Const(1)}), {length}, {1});
    b.Store(1, b.Op(S::kSub, {scan, b.Reduce(R::kMax, scan)}), {length}, {1});
    std::vector<double> want(x.size()), below(x.size());
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0, high = -kInf;
      for (int64_t i = 0; i < length; ++i) {
        sum += 0.5 * x[r * length + i];
        want[r * length + i] = sum + 1;
        high = std::max(high, sum);
      }
      for (int64_t i = 0; i < length; ++i) below[r * length + i] = want[r * length + i] - 1 - high;
    }
    for (Mapping mapping : {Mapping::kRow, Mapping::kBuffer, Mapping::kColumn}) {
      SCOPED_TRACE(MappingName(mapping) + std::to_string(length));
      std::vector<float> y(x.size()), z(x.size());
      CpuKernelUnderTest(b.stage(), Map(mapping)).Run({x.data()}, {y.data(), z.data()});
      ExpectNear(y, want, 2e-7);
      ExpectNear(z, below, 1e-5);
    }
  }
}

TEST(EmitCpu, IntegerAndBooleanRows) {
  const int64_t rows = 3, length = 1029;
  std::vector<int64_t> x(rows * length);
  std::mt19937_64 generator(5);
  for (int64_t& v : x) v = static_cast<int64_t>(generator());
  StageBuilder b({rows}, {length});
  const int v = b.Load(0, {length}, {1}, DType::kInt64);
  const int negative = b.Op(S::kLt, {v, b.Const(0, Type::kI64)}, Type::kBool);
  const int far = b.Op(S::kGe, {b.InnerIndex(0), b.Const(1028, Type::kI64)}, Type::kBool);
  b.Store(0, b.Reduce(R::kSum, v), {1}, {}, DType::kInt64);
  b.Store(1, b.Scan(ScanOp::kProd, v), {length}, {1}, DType::kInt64);
  b.Store(2, b.Reduce(R::kAny, b.Op(S::kAnd, {negative, far}, Type::kBool)), {1}, {}, DType::kBool);
  b.Store(3, b.Op(S::kWhere, {negative, b.Op(S::kNeg, {v}, Type::kI64), v}, Type::kI64), {length},
          {1}, DType::kInt64);
  b.Store(4, b.Reduce(R::kMin, b.Op(S::kCast, {v}, Type::kI32)), {1}, {}, DType::kInt32);
  for (Mapping mapping : {Mapping::kRow, Mapping::kColumn}) {
    SCOPED_TRACE(MappingName(mapping));
    std::vector<int64_t> sum(rows), product(x.size()), magnitude(x.size());
    std::vector<uint8_t> any(rows, 9);
    std::vector<int32_t> low(rows);
    CpuKernelUnderTest(b.stage(), Map(mapping))
        .Run({x.data()}, {sum.data(), product.data(), any.data(), magnitude.data(), low.data()});
    for (int64_t r = 0; r < rows; ++r) {
      uint64_t s = 0, p = 1;
      int32_t least = INT32_MAX;
      for (int64_t i = 0; i < length; ++i) {
        s += static_cast<uint64_t>(x[r * length + i]);
        p *= static_cast<uint64_t>(x[r * length + i]);
        least = std::min(least, static_cast<int32_t>(x[r * length + i]));
        ASSERT_EQ(product[r * length + i], static_cast<int64_t>(p));
        ASSERT_EQ(magnitude[r * length + i], std::abs(x[r * length + i]));
      }
      EXPECT_EQ(sum[r], static_cast<int64_t>(s));
      EXPECT_EQ(any[r], x[r * length + length - 1] < 0 ? 1 : 0);
      EXPECT_EQ(low[r], least);
    }
  }
}

// 3x3 windows with stride 2 and padding 1 over `planes` planes of height x width.
Access WindowAccess(int64_t height, int64_t width) {
  Access access;
  access.dims = {DimIndex{0, {1, 0, 0}, {0, 0}, 1, -1}, DimIndex{-1, {0, 2, 0}, {1, 0}, 1, height},
                 DimIndex{-1, {0, 0, 2}, {0, 1}, 1, width}};
  access.strides = {height * width, width, 1};
  return access;
}

TEST(EmitCpu, MaxPoolingWithBorders) {
  for (const int64_t width : {1, 2, 15, 40}) {
    const int64_t planes = 3, height = 9, oh = (height - 1) / 2 + 1, ow = (width - 1) / 2 + 1;
    const std::vector<float> x = Normal(planes * height * width);
    StageBuilder b({planes, oh, ow}, {3, 3});
    const int v = b.Window(0, WindowAccess(height, width), b.Const(-kInf));
    b.Store(0, b.Reduce(R::kMax, v), {oh * ow, ow, 1}, {});
    b.Store(1, b.Reduce(R::kArgMax, v), {oh * ow, ow, 1}, {}, DType::kInt64);
    for (Mapping mapping : {Mapping::kRow, Mapping::kColumn}) {
      SCOPED_TRACE(MappingName(mapping) + std::to_string(width));
      std::vector<float> y(planes * oh * ow);
      std::vector<int64_t> place(y.size());
      CpuKernelUnderTest(b.stage(), Map(mapping)).Run({x.data()}, {y.data(), place.data()});
      for (int64_t o = 0; o < planes * oh * ow; ++o) {
        const int64_t plane = o / (oh * ow), row = o / ow % oh, column = o % ow;
        float best = -kInf;
        int64_t where = 0;
        for (int64_t k = 0; k < 9; ++k) {
          const int64_t h = row * 2 + k / 3 - 1, w = column * 2 + k % 3 - 1;
          if (h < 0 || w < 0 || h >= height || w >= width) continue;
          const float value = x[(plane * height + h) * width + w];
          if (value > best) best = value, where = k;
        }
        ASSERT_EQ(y[o], best) << o;
        ASSERT_EQ(place[o], where) << o;
      }
    }
  }
}

TEST(EmitCpu, AveragePoolingBackwardDividesIndices) {
  const int64_t planes = 2, height = 9, width = 15, oh = 5, ow = 8;
  const std::vector<float> g = Normal(planes * oh * ow);
  StageBuilder b({planes, height, width}, {3, 3});
  Access access;  // output position (h + 1 - k) / 2
  access.dims = {DimIndex{0, {1, 0, 0}, {0, 0}, 1, -1}, DimIndex{1, {0, 1, 0}, {-1, 0}, 2, oh},
                 DimIndex{1, {0, 0, 1}, {0, -1}, 2, ow}};
  access.strides = {oh * ow, ow, 1};
  const int v = b.Window(0, access, b.Const(0));
  b.Store(0, b.Op(S::kMul, {b.Reduce(R::kSum, v), b.Const(1.0 / 9)}), {height * width, width, 1},
          {});
  std::vector<double> want(planes * height * width);
  for (int64_t o = 0; o < planes * oh * ow; ++o) {
    for (int64_t k = 0; k < 9; ++k) {
      const int64_t h = o / ow % oh * 2 + k / 3 - 1, w = o % ow * 2 + k % 3 - 1;
      if (h < 0 || w < 0 || h >= height || w >= width) continue;
      want[(o / (oh * ow) * height + h) * width + w] += g[o] / 9.0;
    }
  }
  for (Mapping mapping : {Mapping::kRow, Mapping::kColumn}) {
    std::vector<float> y(want.size());
    CpuKernelUnderTest(b.stage(), Map(mapping)).Run({g.data()}, {y.data()});
    ExpectNear(y, want, 1e-6);
  }
}

TEST(EmitCpu, ZeroStridesAndOffsetsInThreeOuterDimensions) {
  const int64_t a = 3, c = 4, d = 5, n = 37;
  const std::vector<float> x = Normal(a * d * n * 2 + 1), y = Normal(n, 3);
  StageBuilder b({a, c, d}, {n});
  const int v = b.Load(0, {2 * d * n, 0, 2 * n}, {2}, DType::kFloat32, 1);
  b.Store(0, b.Reduce(R::kSum, b.Op(S::kMul, {v, b.Load(1, {0, 0, 0}, {1})})), {c * d, d, 1}, {});
  std::vector<double> want(a * c * d);
  for (int64_t o = 0; o < a * c * d; ++o) {
    for (int64_t i = 0; i < n; ++i) {
      want[o] += static_cast<double>(x[o / (c * d) * 2 * d * n + o % d * 2 * n + 2 * i + 1]) * y[i];
    }
  }
  for (Mapping mapping : {Mapping::kRow, Mapping::kColumn}) {
    std::vector<float> got(want.size());
    CpuKernelUnderTest(b.stage(), Map(mapping)).Run({x.data(), y.data()}, {got.data()});
    ExpectNear(got, want, 2e-6);
  }
}

TEST(EmitCpu, FirstScheduleHasTheRightMapping) {
  const DeviceArch arch;
  const std::vector<Schedule> along = CpuSchedules(Softmax(100, 100, 100, 1), arch);
  const std::vector<Schedule> across = CpuSchedules(Softmax(100, 100, 1, 100), arch);
  EXPECT_EQ(along[0].mapping, Mapping::kBuffer);
  EXPECT_EQ(across[0].mapping, Mapping::kColumn);
  EXPECT_LE(along.size(), 8u);
  EXPECT_LE(across.size(), 8u);
}

TEST(EmitCpu, CandidateListsItsBuffersAndIsDeterministic) {
  Program program;
  program.stages = {Softmax(10, 100000, 100000, 1)};
  const OpSignature signature;
  const Result<Candidate> a = EmitCpu(program, signature, {Map(Mapping::kRow)}),
                          b = EmitCpu(program, signature, {Map(Mapping::kRow)});
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->ToJson(), b->ToJson());
  EXPECT_EQ(a->plan.launches[0].args.size(), 2u);
  EXPECT_EQ(a->plan.launches[0].range.text(), "10");
  EXPECT_EQ(a->plan.launches[0].grain.text(), "1");
  EXPECT_FALSE(EmitCpu(program, signature, {Map(Mapping::kWarp)}).ok());
}

}  // namespace
}  // namespace cudaforge::rows
