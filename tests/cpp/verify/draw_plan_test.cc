// What each kind of set promises, on the regions that it is for.
#include "verify/draw_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <tuple>

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
    EXPECT_EQ(std::count(names.begin(), names.end(), "normal, again"), 1);
  }
  const OpSignature signature = SoftmaxOf(Floats({8, 64}));
  const auto sets = DrawNamed(signature, "normal");
  ASSERT_EQ(sets.size(), 2u);
  EXPECT_NE(sets[0].bytes, sets[1].bytes);
  EXPECT_NE(sets[0].set.alignment_mode, sets[1].set.alignment_mode);
}

TEST(DrawPlan, AllIsDecidedByTheSeed) {
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

TEST(DrawPlan, EachRowHasOneSpecialValueAndAllMeetEveryPlace) {
  for (const auto& [rows, length, turns] : {std::tuple{48, 1000, 4}, {240, 33, 1}, {3, 4096, 16}}) {
    const OpSignature signature = SoftmaxOf(Floats({rows, length}));
    for (uint64_t seed = 1; seed < 4; ++seed) {
      const auto sets = DrawNamed(signature, "one_special", seed);
      ASSERT_EQ(static_cast<int>(sets.size()), turns);
      std::set<std::pair<int64_t, char>> met;
      for (const Drawn& drawn : sets) {
        const Numbers values = DrawnValues(signature.inputs[0], drawn.bytes[0]);
        std::map<int64_t, int> in_rows;
        for (size_t at = 0; at < values.size(); ++at) {
          if (std::isfinite(values[at])) {
            EXPECT_TRUE(std::fabs(values[at]) >= 0.5 && std::fabs(values[at]) < 1.61);
            continue;
          }
          const auto place = static_cast<int64_t>(at);
          ++in_rows[place / length];
          met.emplace(place % length, IsNan(values[at]) ? 'n' : values[at] > 0 ? '+' : '-');
        }
        EXPECT_EQ(static_cast<int>(in_rows.size()), rows);
        for (const auto& [row, count] : in_rows) EXPECT_EQ(count, 1) << row;
      }
      int missing = 0;
      for (const int64_t place : {0, length / 2 - 1, length / 2, length - 2, length - 1}) {
        for (const char what : {'n', '+', '-'}) missing += met.contains({place, what}) ? 0 : 1;
      }
      EXPECT_EQ(missing, 0) << rows << " " << length << " seed " << seed;
      for (const int64_t step : {8, 16, 32, 64}) {
        const int64_t begin = (length - 1) / step * step;
        const auto at = [&](int64_t place) {
          return std::any_of(met.begin(), met.end(),
                             [&](const auto& m) { return m.first == place; });
        };
        if (rows == 240 && begin > 0) {
          EXPECT_TRUE(at(begin) && at(begin - 1)) << step;
        }
      }
    }
  }
}

TEST(DrawPlan, GroupsAreWhatTheRegionTakesTogether) {
  const auto specials = [](const char* op, Json args, std::vector<int64_t> out) {
    const OpSignature signature =
        Call(op, std::move(args), {Floats({4, 6, 10})}, {Floats(std::move(out))});
    const Numbers values =
        DrawnValues(signature.inputs[0], DrawNamed(signature, "one_special")[0].bytes[0]);
    std::vector<int64_t> places;
    for (size_t at = 0; at < values.size(); ++at) {
      if (!std::isfinite(values[at])) places.push_back(static_cast<int64_t>(at));
    }
    return places;
  };
  const Json x = Arg(0);
  std::set<int64_t> channels;
  for (const int64_t at : specials("aten::var.correction", {x, {0, 2}}, {6})) {
    channels.insert(at / 10 % 6);
  }
  EXPECT_EQ(channels.size(), 6u);
  EXPECT_EQ(specials("aten::native_layer_norm", {x, {6, 10}}, {4, 6, 10}).size(), 4u);
  std::set<int64_t> groups;
  for (const int64_t at :
       specials("aten::native_group_norm", {x, nullptr, nullptr, 4, 6, 10, 2}, {4, 6, 10})) {
    groups.insert(at / 30);
  }
  EXPECT_EQ(groups.size(), 8u);
  EXPECT_EQ(specials("aten::_softmax", {x, 1, false}, {4, 6, 10}).size(), 40u);
  EXPECT_EQ(specials("aten::exp", Json::array({x}), {4, 6, 10}).size(), 24u);
  EXPECT_EQ(specials("aten::sum", Json::array({x}), {}).size(), 1u);
}

TEST(DrawPlan, InputsOfOneSizeShareTheGroups) {
  const TensorSpec spec = Floats({50, 40});
  const OpSignature signature = Call("aten::add.Tensor", {Arg(0), Arg(1)}, {spec, spec}, {spec});
  std::multiset<size_t> rows;
  const Drawn drawn = DrawNamed(signature, "one_special")[0];
  for (const std::string& bytes : drawn.bytes) {
    const Numbers values = DrawnValues(spec, bytes);
    for (size_t at = 0; at < values.size(); ++at) {
      if (!std::isfinite(values[at])) rows.insert(at / 40);
    }
  }
  EXPECT_EQ(rows.size(), 50u);
  EXPECT_EQ(std::set<size_t>(rows.begin(), rows.end()).size(), 50u);
}

TEST(DrawPlan, ProductsKeepCleanRowsAndColumns) {
  const OpSignature signature =
      Call("aten::mm", {Arg(0), Arg(1)}, {Floats({64, 96}), Floats({96, 64})}, {Floats({64, 64})});
  for (const Drawn& drawn : DrawNamed(signature, "one_special")) {
    const Numbers a = DrawnValues(signature.inputs[0], drawn.bytes[0]);
    const Numbers b = DrawnValues(signature.inputs[1], drawn.bytes[1]);
    std::set<size_t> rows, columns;
    for (size_t i = 0; i < a.size(); ++i) {
      if (!std::isfinite(a[i])) rows.insert(i / 96);
      if (!std::isfinite(b[i])) columns.insert(i % 64);
    }
    EXPECT_GE(rows.size(), 2u);
    EXPECT_LE(rows.size(), 8u);
    EXPECT_GE(columns.size(), 2u);
    EXPECT_LE(columns.size(), 8u);
  }
}

TEST(DrawPlan, GroupsThatOneElementDecides) {
  const OpSignature signature = Call("aten::any.dims", {Arg(0), Json::array({0, -1}), false},
                                     {Floats({4, 32, 7})}, {Spec(DType::kBool, {32})});
  const auto sets = DrawNamed(signature, "one_unlike");
  ASSERT_EQ(sets.size(), 1u) << "32 groups";
  const Numbers values = DrawnValues(signature.inputs[0], sets[0].bytes[0]);
  std::set<int64_t> places;
  std::set<double> backgrounds;
  for (int64_t group = 0; group < 32; ++group) {
    Numbers members;
    for (int64_t i = 0; i < 28; ++i) {
      members.push_back(values[static_cast<size_t>((i / 7 * 32 + group) * 7 + i % 7)]);
    }
    const double common = members[1] == members[2] ? members[1] : members[3];
    int64_t unlike = 0;
    for (int64_t i = 0; i < 28; ++i) {
      if (members[static_cast<size_t>(i)] == common) continue;
      ++unlike;
      places.insert(i);
    }
    EXPECT_LE(unlike, 1);
    backgrounds.insert(common);
  }
  EXPECT_TRUE(places.contains(0) && places.contains(27));
  EXPECT_GT(places.size(), 2u);
  EXPECT_EQ(backgrounds, (std::set<double>{-64, 0, 64}));

  const OpSignature bits = Call("aten::all", Json::array({Arg(0)}), {Spec(DType::kBool, {9, 5})},
                                {Spec(DType::kBool, {})});
  std::set<std::string> of_bits;
  for (const Drawn& drawn : DrawNamed(bits, "one_unlike")) of_bits.insert(drawn.bytes[0]);
  EXPECT_TRUE(of_bits.contains(std::string(45, '\0')));
  EXPECT_TRUE(of_bits.contains(std::string(44, '\1') + '\0'));
}

TEST(DrawPlan, MaximaMeetNumbersFarBelow) {
  constexpr double kLowest = -std::numeric_limits<float>::max(), kEndless = INFINITY;
  const OpSignature columns =
      Call("aten::amax", {Arg(0), Json::array({0}), false}, {Floats({9, 32})}, {Floats({32})});
  const auto sets = DrawNamed(columns, "far_out");
  ASSERT_EQ(sets.size(), 1u);
  const Numbers values = DrawnValues(columns.inputs[0], sets[0].bytes[0]);
  std::map<double, int> all_over;
  for (size_t group = 0; group < 32; ++group) {
    std::map<double, int> elements;
    for (size_t i = 0; i < 9; ++i) ++elements[values[i * 32 + group]];
    EXPECT_LE(elements.size(), 2u);
    for (const auto& [value, count] : elements) {
      if (count == 9) ++all_over[value];
    }
  }
  for (const double value : {kLowest, -kLowest, -kEndless, kEndless}) {
    EXPECT_GE(all_over[value], 1) << value;
  }
  // One group: the patterns all over come first, whatever the seed.
  const OpSignature single =
      Call("aten::amin", {Arg(0), Json::array(), false}, {Floats({9, 24})}, {Floats({})});
  const auto turns = DrawNamed(single, "far_out");
  ASSERT_EQ(turns.size(), 8u);
  std::set<double> first;
  for (size_t turn = 0; turn < 4; ++turn) {
    const Numbers of_turn = DrawnValues(single.inputs[0], turns[turn].bytes[0]);
    const std::set<double> distinct(of_turn.begin(), of_turn.end());
    if (distinct.size() == 1) first.insert(*distinct.begin());
  }
  EXPECT_EQ(first, (std::set<double>{kLowest, -kLowest, -kEndless, kEndless}));
  EXPECT_EQ(CountNamed(Call("aten::sum.dim_IntList", {Arg(0), Json::array({0}), false},
                            {Floats({9, 24})}, {Floats({24})}),
                       "far_out"),
            0);
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
    const double top = dtype == DType::kInt64 ? 0x1p62 : 0x1p30;
    const auto between = [&](double low, double high) {
      return Count(values, [&](double v) { return std::fabs(v) >= low && std::fabs(v) < high; });
    };
    EXPECT_GT(between(0, 0x1p10), 100);
    EXPECT_GT(between(top / 16, top), 100);
    EXPECT_EQ(between(top * 1.01, INFINITY), 0);
    EXPECT_GT(between(12345677, 12345680), 100);  // the constant and its neighbours
    // Where a number is floating, sums of these would tell nothing.
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

TEST(DrawPlan, OddAndEmptyTensors) {
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

TEST(DrawPlan, LargeSetsMeetEverySpecialValueAndAlignment) {
  const OpSignature signature = SoftmaxOf(Floats({70000, 1024}));
  const std::vector<DrawSet> sets = *PlanDraws(signature, *FindRoles(signature), 3);
  std::set<int> modes;
  for (DrawSet set : sets) {
    modes.insert(set.alignment_mode);
    if (set.name != "packed_specials") continue;
    // Its first 2,048 rows alone, as any element can be drawn by itself.
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
  EXPECT_EQ(modes, (std::set<int>{0, 1}));
}

}  // namespace
}  // namespace cudaforge
