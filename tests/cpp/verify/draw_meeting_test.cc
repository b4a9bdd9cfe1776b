// Pairs of special numbers in two operands, and rows with small differences.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>

#include "tests/cpp/verify/drawn_numbers.h"

namespace cudaforge {
namespace {

using Pair = std::function<bool(double, double)>;

OpSignature Binary(const char* op, TensorSpec left, TensorSpec right, DType out) {
  TensorSpec result = left;
  result.dtype = out;
  return Call(op, {Arg(0), Arg(1)}, {left, right}, {result});
}

// Counts these pairs in set "meeting". The right operand has the left's sizes or is one row.
int64_t Meetings(const OpSignature& signature, const Pair& pair) {
  const Drawn drawn = DrawNamed(signature, "meeting").at(0);
  const Numbers left = DrawnValues(signature.inputs[0], drawn.bytes[0]);
  const Numbers right = DrawnValues(signature.inputs[1], drawn.bytes[1]);
  int64_t found = 0;
  for (size_t i = 0; i < left.size(); ++i) found += pair(left[i], right[i % right.size()]) ? 1 : 0;
  return found;
}

TEST(DrawMeeting, AllSpecialPairsOccur) {
  const std::array<Pair, 9> pairs = {
      [](double a, double b) { return a == 0 && std::isinf(b); },
      [](double a, double b) { return std::isinf(a) && b == 0; },
      [](double a, double b) { return std::isinf(a) && a == b; },
      [](double a, double b) { return std::isinf(a) && a == -b; },
      [](double a, double b) { return a == 0 && b == 0 && std::signbit(a) != std::signbit(b); },
      [](double a, double b) { return std::isnan(a) && b == 1; },
      [](double a, double b) { return a == 1 && std::isnan(b); },
      [](double a, double b) { return a == b && std::isfinite(a) && a != 0; },
      [](double a, double b) { return a == -b && std::isfinite(a) && a != 0; }};
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    const TensorSpec spec = Spec(dtype, {64, 259}), row = Spec(dtype, {259});
    for (const TensorSpec& right : {spec, row}) {
      OpSignature alone = Binary("aten::mul.Tensor", spec, right, dtype);
      OpSignature two = alone;
      two.nodes.push_back({"aten::exp", {Json{{"node", 0}, {"out", 0}}}, Json::object(), {spec}});
      two.outputs = {{1, 0}};
      for (size_t p = 0; p < pairs.size(); ++p) {
        EXPECT_GT(Meetings(alone, pairs[p]), 1) << DTypeName(dtype) << p;
        EXPECT_GT(Meetings(two, pairs[p]), 1) << DTypeName(dtype) << p;
      }
    }
  }
}

TEST(DrawMeeting, RegionsOfEverySizeHaveOneMeetingSet) {
  for (const int64_t rows : {int64_t{1} << 6, int64_t{1} << 13, int64_t{1} << 17}) {
    const TensorSpec spec = Floats({rows, 1024});
    OpSignature one = Binary("aten::mul.Tensor", spec, spec, DType::kFloat32);
    EXPECT_EQ(CountNamed(one, "meeting"), 1) << rows;
    // A power or a sine of these numbers depends on the implementation.
    one.nodes[0].op = "aten::pow.Tensor_Tensor";
    EXPECT_EQ(CountNamed(one, "meeting"), 0) << rows;
    EXPECT_EQ(CountNamed(SoftmaxOf(spec), "meeting"), 0) << rows;
    EXPECT_EQ(CountNamed(SoftmaxOf(spec), "next_above"), 0) << rows;
  }
}

TEST(DrawMeeting, ProductsOverflowAndBecomeDenormal) {
  const TensorSpec spec = Floats({64, 259});
  const OpSignature mul = Binary("aten::mul.Tensor", spec, spec, DType::kFloat32);
  const auto finite = [](double a) { return std::isfinite(a) && std::fabs(a) >= 0x1p-126; };
  EXPECT_GT(
      Meetings(mul, [&](double a,
                        double b) { return finite(a) && finite(b) && std::fabs(a * b) > 0x1p128; }),
      100);
  EXPECT_GT(Meetings(mul,
                     [&](double a, double b) {
                       const double product = std::fabs(a * b);
                       return finite(a) && finite(b) && product < 0x1p-126 && product > 0x1p-149;
                     }),
            20);
}

TEST(DrawMeeting, NeighboursAreCompared) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    const TensorSpec spec = Spec(dtype, {64, 259});
    const OpSignature signature = Binary("aten::gt.Tensor", spec, spec, DType::kBool);
    const double unit = UlpOf(dtype, 1);
    EXPECT_GT(Meetings(signature, [&](double a, double b) { return a > 0 && a - b == unit; }), 3);
    EXPECT_GT(Meetings(signature, [&](double a, double b) { return a > 0 && b - a == unit; }), 3);
  }
  const TensorSpec integers = Spec(DType::kInt64, {64, 259});
  const OpSignature equal = Binary("aten::eq.Tensor", integers, integers, DType::kBool);
  const Drawn drawn = DrawNamed(equal, "meeting").at(0);
  std::array<std::vector<int64_t>, 2> values;
  for (size_t i = 0; i < 2; ++i) {
    values[i].resize(drawn.bytes[i].size() / 8);
    std::memcpy(values[i].data(), drawn.bytes[i].data(), drawn.bytes[i].size());
  }
  int low = 0, in_float = 0, overflow = 0;
  for (size_t i = 0; i < values[0].size(); ++i) {
    const int64_t a = values[0][i], b = values[1][i];
    int64_t sum;
    low += a != b && static_cast<int32_t>(a) == static_cast<int32_t>(b);
    in_float += a != b && static_cast<float>(a) == static_cast<float>(b);
    overflow += __builtin_add_overflow(a, b, &sum);
  }
  EXPECT_GT(low, 20);
  EXPECT_GT(in_float, 20);
  EXPECT_GT(overflow, 20);
}

TEST(DrawMeeting, OneOperandHasEveryExponentAndTheEndsOfExponentials) {
  const TensorSpec spec = Floats({96, 1003});
  for (const char* op : {"aten::relu", "aten::exp"}) {
    const OpSignature signature = Call(op, {Arg(0)}, {spec}, {spec});
    const Numbers values = DrawnValues(spec, DrawNamed(signature, "meeting").at(0).bytes[0]);
    for (int exponent = -149; exponent < 120; ++exponent) {
      if (exponent < -128) continue;  // few of the denormals
      const double low = std::ldexp(1.0, exponent);
      EXPECT_GT(Count(values, [&](double v) { return v >= low && v < 2 * low; }), 0) << exponent;
      EXPECT_GT(Count(values, [&](double v) { return v <= -low && v > -2 * low; }), 0) << exponent;
    }
    EXPECT_GT(Count(values, [](double v) { return v > 88.6 && v < 88.722; }), 2);
    EXPECT_GT(Count(values, [](double v) { return v == 2.5; }), 2);
  }
}

// Numbers are not rounded before, so a margin or a coarser comparison selects another index.
TEST(DrawMeeting, SelectedNumbersHaveClosestNeighbours) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    for (const int64_t rows : {int64_t{96}, int64_t{20000}}) {
      const TensorSpec spec = Spec(dtype, {rows, 1003});
      const OpSignature signature =
          Call("aten::argmax", {Arg(0), 1, false}, {spec}, {Spec(DType::kInt64, {rows})});
      const Drawn drawn = DrawNamed(signature, "next_above").at(0);
      const Numbers values = DrawnValues(spec, drawn.bytes[0]);
      int tied = 0, late = 0, next = 0;
      for (int64_t row = 0; row < 96; ++row) {
        const auto begin = values.begin() + row * 1003, end = begin + 1003;
        const auto top = std::max_element(begin, end);
        tied += std::count(begin, end, *top) > 1;
        late += top - begin > 500;
        double second = -INFINITY;
        for (auto at = begin; at != end; ++at) {
          if (*at < *top) second = std::max(second, *at);
        }
        next += *top - second <= UlpOf(dtype, std::fabs(second)) * 1.01;
      }
      EXPECT_GT(tied, 20) << DTypeName(dtype);
      EXPECT_GT(late, 4) << DTypeName(dtype);
      EXPECT_GT(next, 20) << DTypeName(dtype);
    }
  }
}

TEST(DrawMeeting, NeighbouringRowsDifferInOneElement) {
  for (const int64_t rows : {int64_t{96}, int64_t{20000}}) {
    const TensorSpec spec = Floats({rows, 1003});
    int equal = 0, one = 0, first = 0, last = 0;
    for (const Drawn& drawn : DrawAll(SoftmaxOf(spec))) {
      if (drawn.set.name != "wide" && drawn.set.name != "mixed") continue;
      const Numbers values = DrawnValues(spec, drawn.bytes[0]);
      for (int64_t row = 1; row < std::min<int64_t>(rows, 1000); ++row) {
        const double* const now = &values[static_cast<size_t>(row * 1003)];
        const double* const before = now - 1003;
        int64_t differ = 0, at = 0;
        for (int64_t i = 0; i < 1003; ++i) {
          if (now[i] == before[i]) continue;
          ++differ;
          at = i;
        }
        equal += differ == 0 && now[0] != now[1];
        one += differ == 1;
        first += differ == 1 && at == 0;
        last += differ == 1 && at == 1002;
      }
    }
    EXPECT_GT(equal, 2) << rows;
    EXPECT_GT(one, 6) << rows;
    EXPECT_GT(first, 0) << rows;
    EXPECT_GT(last, 0) << rows;
  }
}

TEST(DrawMeeting, VariancesReachZeroWithEpsilon) {
  const TensorSpec channels = Floats({48}), spec = Floats({3, 48, 79});
  for (const double epsilon : {1e-5, 0.0}) {
    const OpSignature signature =
        Call("aten::_native_batch_norm_legit_no_training",
             {Arg(0), Arg(1), Arg(2), Arg(3), Arg(4), 0.1, epsilon},
             {spec, channels, channels, channels, channels}, {spec, Floats({0}), Floats({0})});
    Numbers all;
    for (const Drawn& drawn : DrawAll(signature)) {
      for (const double v : DrawnValues(channels, drawn.bytes[4])) all.push_back(v);
    }
    EXPECT_EQ(Count(all, [](double v) { return !(v >= 0); }), 0);
    EXPECT_EQ(Count(all, [](double v) { return v == 0; }) > 0, epsilon > 0);
    EXPECT_GT(Count(all, [](double v) { return v > 0 && v < 2e-3; }), 5);
    EXPECT_GT(Count(all, [](double v) { return v > 9e3; }), 5);
  }
}

// Zeros of one factor are paired with NaN and infinities of the other, whichever is larger.
TEST(DrawMeeting, ZerosOfProductsArePairedWithSpecialNumbers) {
  for (const auto& [m, n] : {std::pair{65, 67}, {67, 65}, {66, 66}}) {
    const TensorSpec left = Floats({m, 259}), right = Floats({259, n});
    const OpSignature mm = Call("aten::mm", {Arg(0), Arg(1)}, {left, right}, {Floats({m, n})});
    std::array<int64_t, 2> hidden = {};
    for (const Drawn& drawn : DrawAll(mm)) {
      const Numbers a = DrawnValues(left, drawn.bytes[0]), b = DrawnValues(right, drawn.bytes[1]);
      const auto wild = [](double v) { return !std::isfinite(v); };
      for (int64_t r = 0; r < m; ++r) {
        for (int64_t c = 0; c < n; ++c) {
          int64_t special = 0, of_left = 0, of_right = 0;
          for (int64_t k = 0; k < 259; ++k) {
            const double x = a[static_cast<size_t>(r * 259 + k)];
            const double y = b[static_cast<size_t>(k * n + c)];
            special += wild(x) || wild(y);
            of_left += x == 0 && wild(y);
            of_right += y == 0 && wild(x);
          }
          // All special values there are multiplied by zero.
          hidden[0] += special > 0 && of_left == special;
          hidden[1] += special > 0 && of_right == special;
        }
      }
    }
    EXPECT_GT(hidden[0], 10) << m;
    EXPECT_GT(hidden[1], 10) << m;
  }
}

}  // namespace
}  // namespace cudaforge
