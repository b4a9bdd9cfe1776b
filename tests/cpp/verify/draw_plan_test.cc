// The contents of each kind of set, on the regions that it is for.
#include "verify/draw_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "tests/cpp/verify/drawn_numbers.h"

namespace cudaforge {
namespace {

TEST(DrawPlan, NumbersOfSetsBySize) {
  const auto sets = [](int64_t rows) { return NamesOf(SoftmaxOf(Floats({rows, 1024}))).size(); };
  EXPECT_GE(sets(1 << 10), 14u);
  EXPECT_LE(sets(1 << 10), 26u);
  EXPECT_GE(sets(1 << 13), 7u);
  EXPECT_LE(sets(1 << 13), 9u);
  EXPECT_GE(sets(1 << 17), 5u);
  EXPECT_LE(sets(1 << 17), 6u);
  EXPECT_EQ(PlanDraws(SoftmaxOf(Floats({2, 2})), {}, 1).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(DrawPlan, OneSetIsDrawnTwice) {
  for (const int64_t rows : {8, 1 << 13, 1 << 17}) {
    const auto names = NamesOf(SoftmaxOf(Floats({rows, 1024})));
    EXPECT_EQ(std::count(names.begin(), names.end(), "normal 2"), 1);
  }
  const OpSignature signature = SoftmaxOf(Floats({8, 64}));
  const auto sets = DrawNamed(signature, "normal");
  ASSERT_EQ(sets.size(), 2u);
  EXPECT_NE(sets[0].bytes, sets[1].bytes);
}

TEST(DrawPlan, SeedDeterminesEverything) {
  const OpSignature signature = SoftmaxOf(Floats({33, 65}));
  const auto one = DrawAll(signature, 1), same = DrawAll(signature, 1),
             other = DrawAll(signature, 2);
  ASSERT_EQ(one.size(), other.size());
  for (size_t s = 0; s < one.size(); ++s) {
    EXPECT_EQ(one[s].bytes, same[s].bytes);
    if (one[s].set.name != "all_equal") {
      EXPECT_NE(one[s].bytes, other[s].bytes) << one[s].set.name;
    }
    // Another draw of one set.
    if (one[s].set.worth_errors) {
      EXPECT_NE(DrawBytes(signature, one[s].set, 5), one[s].bytes);
      for (const double v : DrawnValues(signature.inputs[0], one[s].bytes[0])) {
        ASSERT_TRUE(std::isfinite(v)) << one[s].set.name;
      }
    }
  }
}

TEST(DrawPlan, RowsOfEveryKindInAMixedSet) {
  for (const auto& sizes : {std::vector<int64_t>{64, 400}, {400, 64}, {1, 9000}}) {
    const bool columns = sizes[0] == 400;
    OpSignature signature =
        Call("aten::sum.dim_IntList", {Arg(0), Json::array({columns ? 0 : 1}), false},
             {Floats(sizes)}, {Floats({columns ? sizes[1] : sizes[0]})});
    const Numbers values =
        DrawnValues(signature.inputs[0], DrawNamed(signature, "mixed")[0].bytes[0]);
    EXPECT_GT(Count(values, [](double v) { return v > 990; }), 10);
    EXPECT_GT(Count(values, [](double v) { return v < -990; }), 10);
    EXPECT_GT(Count(values, [](double v) { return v == 0; }), 100);
    EXPECT_GT(Count(values, [](double v) { return v != 0 && std::fabs(v) < 0x1p-12; }), 100);
    EXPECT_GE(Count(values, [](double v) { return v == 256; }), sizes[0] == 1 ? 0 : 1);
    EXPECT_EQ(Count(values, [](double v) { return !std::isfinite(v); }), 0);
  }
}

TEST(DrawPlan, SpecialRowsHoldEveryKindOfNan) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    const OpSignature signature = SoftmaxOf(Spec(dtype, {64, 128}));
    const Drawn drawn = DrawNamed(signature, "special_rows").at(0);
    const Numbers values = DrawnValues(signature.inputs[0], drawn.bytes[0]);
    std::set<std::string> nans;
    const auto size = static_cast<size_t>(DTypeSize(dtype));
    for (size_t i = 0; i < values.size(); ++i) {
      if (IsNan(values[i])) nans.insert(drawn.bytes[0].substr(i * size, size));
    }
    EXPECT_EQ(nans.size(), 4u) << "plain, with a sign, with a payload, of all ones";
    EXPECT_GT(Count(values, [](double v) { return v == INFINITY; }), 0);
    EXPECT_GT(Count(values, [](double v) { return v == -INFINITY; }), 0);
    int clean = 0;
    for (size_t row = 0; row < 64; ++row) {
      clean += std::all_of(&values[row * 128], &values[row * 128] + 128,
                           [](double v) { return std::isfinite(v); });
    }
    EXPECT_GE(clean, 24);
  }
}

TEST(DrawPlan, ZerosDenormalsAndScales) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    const OpSignature signature = SoftmaxOf(Spec(dtype, {32, 64}));
    const double normal = dtype == DType::kFloat16   ? 0x1p-14
                          : dtype == DType::kFloat64 ? 0x1p-1022
                                                     : 0x1p-126;
    const Numbers values =
        DrawnValues(signature.inputs[0], DrawNamed(signature, "zeros_denormals")[0].bytes[0]);
    EXPECT_GT(Count(values, [&](double v) { return v != 0 && std::fabs(v) < normal; }), 100);
    EXPECT_GT(Count(values, [](double v) { return v == 0 && std::signbit(v); }), 20);
    EXPECT_GT(Count(values, [](double v) { return v == 0 && !std::signbit(v); }), 20);
    const Numbers scales =
        DrawnValues(signature.inputs[0], DrawNamed(signature, "row_scales")[0].bytes[0]);
    const double wide = dtype == DType::kFloat16 ? 0x1p6 : 0x1p28;
    EXPECT_GT(Count(scales, [&](double v) { return std::fabs(v) > wide; }), 100);
    EXPECT_GT(Count(scales, [&](double v) { return std::fabs(v) < 1 / wide; }), 100);
  }
}

TEST(DrawPlan, IntegersOfEveryMagnitude) {
  for (const DType dtype : {DType::kInt64, DType::kInt32}) {
    const TensorSpec spec = Spec(dtype, {64, 64});
    OpSignature signature = Call("aten::add.Scalar", {Arg(0), 12345678, 1}, {spec}, {spec});
    const Numbers values = DrawnValues(spec, DrawNamed(signature, "row_scales")[0].bytes[0]);
    const double top = dtype == DType::kInt64 ? 0x1p63 : 0x1p31;
    const auto between = [&](double low, double high) {
      return Count(values, [&](double v) { return std::fabs(v) >= low && std::fabs(v) < high; });
    };
    EXPECT_GT(between(0, 0x1p10), 100);
    EXPECT_GT(between(top / 16, top), 100);
    EXPECT_EQ(between(top * 1.01, INFINITY), 0);
    EXPECT_GT(between(12345677, 12345680), 100);  // the constant and its neighbours
    // With a floating number, these sums would be useless.
    signature.nodes[0].outputs[0].dtype = DType::kFloat32;
    const Numbers small = DrawnValues(spec, DrawNamed(signature, "row_scales")[0].bytes[0]);
    EXPECT_LE(*std::max_element(small.begin(), small.end()), 0x1p19);
  }
}

TEST(DrawPlan, GapsAreNanOrOrdinary) {
  TensorSpec spec = Floats({4, 8});
  spec.strides = {20, 2};
  int nan = 0, ordinary = 0;
  for (const Drawn& drawn : DrawAll(SoftmaxOf(spec))) {
    const std::string gap = drawn.bytes[0].substr(4, 4) + drawn.bytes[0].substr(60, 16);
    float first;
    std::memcpy(&first, gap.data(), sizeof(first));
    nan += gap == std::string(20, '\xff');
    ordinary += std::fabs(first) < 4;
  }
  EXPECT_GT(ordinary, 3);
  EXPECT_GT(nan, ordinary);
  TensorSpec windows = Spec(DType::kInt64, {4, 3}, {1, 2});
  const OpSignature picks = Call("aten::embedding", {Arg(0), Arg(1), -1, false, false},
                                 {Floats({9, 8}), windows}, {Floats({4, 3, 8})});
  for (const Drawn& drawn : DrawAll(picks)) {
    for (const double v : DrawnValues(windows, drawn.bytes[1])) EXPECT_TRUE(v >= 0 && v < 9);
  }
}

TEST(DrawPlan, UnusualAndEmptyTensors) {
  for (const auto& sizes :
       {std::vector<int64_t>{}, {1}, {0, 8}, {3, 1}, {1, 3}, {7, 0, 2}, {2, 3, 5, 7}}) {
    for (const Drawn& drawn : DrawAll(SoftmaxOf(Floats(sizes)))) {
      EXPECT_EQ(static_cast<int64_t>(drawn.bytes[0].size()), Floats(sizes).StorageBytes());
      EXPECT_EQ(drawn.bytes[0].find(std::string(4, '\x5a')), std::string::npos);
    }
  }
  TensorSpec expanded = Floats({1000, 8});
  expanded.strides = {0, 1};
  EXPECT_EQ(DrawAll(SoftmaxOf(expanded))[0].bytes[0].size(), 32u);
  OpSignature none = Call("aten::full", {Json::array({2}), 1}, {}, {Floats({2})});
  EXPECT_GE(DrawAll(none).size(), 1u);
}

TEST(DrawPlan, OneTensorGivenTwiceIsEqualInOneSet) {
  const TensorSpec spec = Floats({8, 8});
  OpSignature signature = Call("aten::mul.Tensor", {Arg(0), Arg(1)}, {spec, spec}, {spec});
  signature.aliases = {{0, 1}};
  int equal = 0;
  for (const Drawn& drawn : DrawAll(signature)) {
    if (drawn.set.name != "all_equal") equal += drawn.bytes[0] == drawn.bytes[1];
  }
  EXPECT_EQ(equal, 1);
}

// The large numbers of row_scales overflow an accumulator that is too narrow.
TEST(DrawPlan, LargeIntegersAreOfEveryMagnitude) {
  for (const int64_t mebibytes : {33, 257}) {
    const TensorSpec spec = Spec(DType::kInt64, {mebibytes << 17});
    const OpSignature sum =
        Call("aten::sum", Json::array({Arg(0)}), {spec}, {Spec(DType::kInt64, {})});
    EXPECT_GE(NamesOf(sum).size(), 4u) << mebibytes;
    EXPECT_EQ(CountNamed(sum, "row_scales"), 1) << mebibytes;
  }
}

TEST(DrawPlan, LargeInputsOfALogarithmArePositiveOnce) {
  const auto call = [](const char* op) {
    const TensorSpec spec = Floats({70000, 1024});
    return Call(op, Json::array({Arg(0)}), {spec}, {spec});
  };
  EXPECT_EQ(CountNamed(call("aten::log"), "uniform"), 1);
  EXPECT_EQ(CountNamed(call("aten::exp"), "uniform"), 0);
}

TEST(DrawPlan, LargeSetsHaveEverySpecialValue) {
  const OpSignature signature = SoftmaxOf(Floats({70000, 1024}));
  const std::vector<DrawSet> sets = *PlanDraws(signature, *FindRoles(signature), 3);
  bool packed = false;
  for (DrawSet set : sets) {
    if (set.name != "packed_specials") continue;
    packed = true;
    // Draws only its first 2,048 rows, because each element is independent.
    OpSignature first = SoftmaxOf(Floats({2048, 1024}));
    set.tensors[0].elements = 2048 * 1024;
    const Numbers values = DrawnValues(first.inputs[0], DrawBytes(first, set, 3)[0]);
    int single = 0, clean = 0, many = 0;
    std::set<int64_t> places;
    for (size_t row = 0; row < 2048; ++row) {
      const double* const of_row = &values[row * 1024];
      const auto odd = [](double v) { return !std::isfinite(v); };
      const int64_t specials = std::count_if(of_row, of_row + 1024, odd);
      if (specials == 1) places.insert(std::find_if(of_row, of_row + 1024, odd) - of_row);
      single += specials == 1;
      clean += specials == 0;
      many += specials > 10;
    }
    EXPECT_GT(single, 400);
    EXPECT_GT(clean, 400);
    EXPECT_GT(many, 200);
    for (const int64_t place : {0, 511, 512, 1022, 1023, 1016, 1015}) {
      EXPECT_TRUE(places.contains(place)) << place;
    }
  }
  EXPECT_TRUE(packed);
}

}  // namespace
}  // namespace cudaforge
