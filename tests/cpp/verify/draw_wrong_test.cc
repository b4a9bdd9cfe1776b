// Wrong loops must differ from the correct one on some set.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "tests/cpp/verify/drawn.h"

namespace cudaforge {
namespace {

// The results of a row of n elements: one or n.
using RowLoop = std::function<std::vector<double>(const float* x, int64_t n)>;

struct WrongLoop {
  const char* name;
  RowLoop loop;
};

std::vector<double> One(double value) { return {value}; }

RowLoop SumOf(std::function<double(float)> element, int64_t begin = 0,
              std::function<int64_t(int64_t)> end = {}) {
  return [=](const float* x, int64_t n) {
    double sum = 0;
    for (int64_t i = begin; i < (end ? end(n) : n); ++i) sum += element(x[i]);
    return One(sum);
  };
}
double Same(float v) { return v; }

const std::vector<WrongLoop>& WrongSums() {
  static const std::vector<WrongLoop> loops = {
      {"no last", SumOf(Same, 0, [](int64_t n) { return n - 1; })},
      {"no first", SumOf(Same, 1)},
      {"no tail of 64", SumOf(Same, 0, [](int64_t n) { return (n - 1) / 64 * 64; })},
      {"no last tenth", SumOf(Same, 0, [](int64_t n) { return n - n / 10; })},
      {"NaN is 0", SumOf([](float v) { return std::isnan(v) ? 0 : v; })},
      {"only plain NaN is NaN", SumOf([](float v) {
         return std::isnan(v) && std::bit_cast<uint32_t>(v) != 0x7fc00000u ? 0.0 : v;
       })},
      {"only NaN without sign is NaN",
       SumOf([](float v) { return std::isnan(v) && std::signbit(v) ? 0.0 : v; })},
      {"-infinity is 0", SumOf([](float v) { return v == -INFINITY ? 0 : v; })},
      {"infinity is 0", SumOf([](float v) { return v == INFINITY ? 0 : v; })},
      {"infinity is the largest", SumOf([](float v) {
         return std::clamp<double>(v, -std::numeric_limits<float>::max(),
                                   std::numeric_limits<float>::max());
       })},
      {"within 1e6", SumOf([](float v) { return std::isnan(v) ? v : std::clamp(v, -1e6F, 1e6F); })},
      {"no middle",
       [](const float* x, int64_t n) {
         double sum = 0;
         for (int64_t i = 0; i < n; ++i) sum += i == n / 2 ? 0 : x[i];
         return One(sum);
       }},
      {"NaN lost at the last place",
       [](const float* x, int64_t n) {
         double sum = 0;
         for (int64_t i = 0; i < n; ++i) sum += i + 1 == n && std::isnan(x[i]) ? 0 : x[i];
         return One(sum);
       }},
      {"infinity lost at the first place",
       [](const float* x, int64_t n) {
         double sum = 0;
         for (int64_t i = 0; i < n; ++i) sum += i == 0 && std::isinf(x[i]) ? 0 : x[i];
         return One(sum);
       }},
  };
  return loops;
}

// `maximum` of a row; exp(x - maximum) over their sum.
RowLoop SoftmaxLoop(std::function<double(const float*, int64_t)> maximum, int64_t left_out = 0,
                    std::function<double(float)> element = Same) {
  return [=](const float* x, int64_t n) {
    const double top = maximum(x, n);
    double sum = 0;
    std::vector<double> out(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const double term = static_cast<float>(std::exp(element(x[i]) - top));
      out[static_cast<size_t>(i)] = term;
      if (i < n - left_out) sum += term;
    }
    for (double& v : out) v /= sum;
    return out;
  };
}
double MaximumOf(const float* x, int64_t n) {
  double top = -INFINITY;
  for (int64_t i = 0; i < n; ++i) top = std::isnan(top) || x[i] <= top ? top : x[i];
  return top;
}
double MaximumFrom(double start, const float* x, int64_t n) {
  double top = start;
  for (int64_t i = 0; i < n; ++i) top = std::fmax(top, x[i]);
  return top;
}

const std::vector<WrongLoop>& WrongSoftmaxes() {
  static const std::vector<WrongLoop> loops = {
      {"no maximum", SoftmaxLoop([](const float*, int64_t) { return 0.0; })},
      {"maximum from 0",
       SoftmaxLoop([](const float* x, int64_t n) { return MaximumFrom(0, x, n); })},
      {"maximum from -1e30",
       SoftmaxLoop([](const float* x, int64_t n) { return MaximumFrom(-1e30, x, n); })},
      {"sum without the last", SoftmaxLoop(MaximumOf, 1)},
      {"NaN is -infinity",
       SoftmaxLoop([](const float* x, int64_t n) { return MaximumFrom(-INFINITY, x, n); }, 0,
                   [](float v) { return std::isnan(v) ? -INFINITY : v; })},
      {"infinity is the largest",
       SoftmaxLoop([](const float* x, int64_t n) { return std::fmin(MaximumOf(x, n), 3e38); }, 0,
                   [](float v) { return v == INFINITY ? 3e38F : v; })},
      {"neighbours exchanged",
       [](const float* x, int64_t n) {
         std::vector<double> out = SoftmaxLoop(MaximumOf)(x, n);
         if (n > 9) std::swap(out[8], out[9]);
         return out;
       }},
      {"one number for all",
       [](const float*, int64_t n) {
         return std::vector<double>(static_cast<size_t>(n), 1.0 / static_cast<double>(n));
       }},
  };
  return loops;
}

RowLoop AnyOf(std::function<bool(float)> holds, int64_t begin = 0, int64_t left_out = 0) {
  return [=](const float* x, int64_t n) {
    bool any = false;
    for (int64_t i = begin; i < n - left_out; ++i) any = any || holds(x[i]);
    return One(any);
  };
}
bool IsTrue(float v) { return v != 0; }

const std::vector<WrongLoop>& WrongAnys() {
  static const std::vector<WrongLoop> loops = {
      {"no last", AnyOf(IsTrue, 0, 1)},
      {"no first", AnyOf(IsTrue, 1)},
      {"always", AnyOf([](float) { return true; })},
      {"never", AnyOf([](float) { return false; })},
      {"above 0", AnyOf([](float v) { return v > 0; })},
      {"the first half",
       [](const float* x, int64_t n) { return AnyOf(IsTrue)(x, std::max<int64_t>(n / 2, 1)); }},
      {"no tail of 32",
       [](const float* x, int64_t n) { return AnyOf(IsTrue)(x, (n - 1) / 32 * 32); }},
  };
  return loops;
}

RowLoop ArgmaxOf(double start, bool last_tie, bool sees_nan, int64_t left_out = 0) {
  return [=](const float* x, int64_t n) {
    double top = start;
    int64_t place = 0;
    for (int64_t i = 0; i < n - left_out; ++i) {
      if (sees_nan && std::isnan(x[i])) return One(static_cast<double>(i));
      if (x[i] > top || (last_tie && x[i] == top)) {
        top = x[i];
        place = i;
      }
    }
    return One(static_cast<double>(place));
  };
}

const std::vector<WrongLoop>& WrongArgmaxes() {
  static const std::vector<WrongLoop> loops = {
      {"no last", ArgmaxOf(-INFINITY, false, true, 1)},
      {"from 0", ArgmaxOf(0, false, true)},
      {"last of equal ones", ArgmaxOf(-INFINITY, true, true)},
      {"NaN is not seen", ArgmaxOf(-INFINITY, false, false)},
      {"of sizes",
       [](const float* x, int64_t n) {
         std::vector<float> sizes(x, x + n);
         for (float& v : sizes) v = std::fabs(v);
         return ArgmaxOf(-INFINITY, false, true)(sizes.data(), n);
       }},
  };
  return loops;
}

bool Differ(double right, double wrong) {
  if (std::isnan(right) || std::isnan(wrong)) return std::isnan(right) != std::isnan(wrong);
  if (std::isinf(right) || std::isinf(wrong)) return right != wrong;
  return std::fabs(right - wrong) > 1e-4 * std::fabs(right) + 1e-6;
}

// The region's rows in all sets; of a large region only the first rows.
struct Rows {
  std::string name;
  std::vector<float> values;
  int64_t length;
};
std::vector<Rows> RowsOf(const char* op, Json args, DType out, int64_t rows, int64_t length,
                         bool wide, uint64_t seed) {
  const auto region = [&](int64_t count) {
    const TensorSpec spec = Spec(DType::kFloat32, {count, length});
    const TensorSpec result = wide ? spec : Spec(out, {count});
    return Call(op, args, {spec}, {result});
  };
  const OpSignature signature = region(rows);
  const std::vector<DrawSet> sets = *PlanDraws(signature, *FindRoles(signature), seed);
  const int64_t drawn = std::min<int64_t>(rows, 256);
  const OpSignature first = region(drawn);
  std::vector<Rows> all;
  for (DrawSet set : sets) {
    set.tensors[0].elements = drawn * length;
    const std::string bytes = DrawBytes(first, set, seed)[0];
    Rows of_set = {set.name, std::vector<float>(bytes.size() / 4), length};
    std::memcpy(of_set.values.data(), bytes.data(), bytes.size());
    all.push_back(std::move(of_set));
  }
  return all;
}

void ExpectCaught(const std::vector<WrongLoop>& wrong, const RowLoop& right, const char* op,
                  const Json& args, DType out, bool wide = false) {
  for (const auto& [rows, length] : {std::pair{64, 1000}, {3, 4096}, {90000, 1024}, {20000, 500}}) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const std::vector<Rows> sets = RowsOf(op, args, out, rows, length, wide, seed);
      for (const WrongLoop& one : wrong) {
        bool caught = false;
        for (size_t s = 0; s < sets.size() && !caught; ++s) {
          const std::vector<float>& values = sets[s].values;
          for (size_t at = 0; at < values.size() && !caught; at += static_cast<size_t>(length)) {
            const std::vector<double> a = right(&values[at], length),
                                      b = one.loop(&values[at], length);
            for (size_t i = 0; i < a.size(); ++i) caught = caught || Differ(a[i], b[i]);
          }
        }
        EXPECT_TRUE(caught) << op << " \"" << one.name << "\", " << rows << " rows, seed " << seed;
      }
    }
  }
}

TEST(DrawnSets, CatchWrongSums) {
  ExpectCaught(WrongSums(), SumOf(Same), "aten::sum.dim_IntList", {Arg(0), Json::array({1}), false},
               DType::kFloat32);
}

TEST(DrawnSets, CatchWrongSoftmaxes) {
  ExpectCaught(WrongSoftmaxes(), SoftmaxLoop(MaximumOf), "aten::_softmax", {Arg(0), 1, false},
               DType::kFloat32, /*wide=*/true);
}

TEST(DrawnSets, CatchWrongAnys) {
  ExpectCaught(WrongAnys(), AnyOf(IsTrue), "aten::any.dim", {Arg(0), 1, false}, DType::kBool);
}

TEST(DrawnSets, CatchWrongArgmaxes) {
  ExpectCaught(WrongArgmaxes(), ArgmaxOf(-INFINITY, false, true), "aten::argmax",
               {Arg(0), 1, false}, DType::kInt64);
}

}  // namespace
}  // namespace cudaforge
