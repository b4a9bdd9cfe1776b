// Sets in which one element of a group decides: the groups, and their contents.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "tests/cpp/verify/drawn_numbers.h"
#include "verify/draw_layout.h"

namespace cudaforge {
namespace {

TEST(DrawGroups, OneSpecialValuePerRowAtEveryPlace) {
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

TEST(DrawGroups, GroupsAreReducedElements) {
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

TEST(DrawGroups, InputsOfOneSizeShareTheGroups) {
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

  const auto specials = [](const OpSignature& of, size_t turn, size_t i) {
    const Drawn turned = DrawNamed(of, "one_special").at(turn);
    return Count(DrawnValues(of.inputs[i], turned.bytes[i]),
                 [](double v) { return !std::isfinite(v); });
  };
  // With one group, sets take turns.
  OpSignature sum = signature;
  sum.nodes.push_back({"aten::sum", {{{"node", 0}, {"out", 0}}}, Json::object(), {Floats({})}});
  sum.outputs = {{1, 0}};
  for (size_t turn = 0; turn < 4; ++turn) {
    EXPECT_EQ(specials(sum, turn, 0) + specials(sum, turn, 1), 1);
    EXPECT_NE(specials(sum, turn, 0), specials(sum, turn + 1, 0));
  }
  // An input with restricted values stays unchanged.
  const OpSignature saved =
      Call("aten::_softmax_backward_data", {Arg(0), Arg(1), 1, 6}, {spec, spec}, {spec});
  EXPECT_EQ(specials(saved, 0, 0), 50);
  EXPECT_EQ(specials(saved, 0, 1), 0);
  // So does a smaller input.
  EXPECT_EQ(
      CountNamed(Call("aten::sigmoid_backward", {Arg(1), Arg(0)}, {spec, Floats({1, 40})}, {spec}),
                 "one_special"),
      0);
}

TEST(DrawGroups, MasksAndArithmeticWithMaxima) {
  const auto of = [](const std::vector<const char*>& ops) {
    const TensorSpec spec = Floats({9, 24});
    OpSignature signature = Call("", {}, {spec}, {spec});
    signature.nodes.clear();
    for (const char* op : ops) {
      signature.nodes.push_back({op, Json::array({Arg(0)}), Json::object(), {spec}});
    }
    return DecidesExtremes(signature);
  };
  EXPECT_EQ(of({"aten::eq.Scalar", "aten::full", "aten::where.self", "aten::_softmax"}), 1);
  EXPECT_EQ(of({"aten::bitwise_not", "aten::full", "aten::where.self", "aten::amin"}), -1);
  EXPECT_EQ(of({"aten::gt.Scalar", "aten::mul.Tensor", "aten::where.self", "aten::amax"}), 1);
  EXPECT_EQ(of({"aten::pow.Tensor_Scalar", "aten::amax"}), 0);
  EXPECT_EQ(of({"aten::amax", "aten::amin"}), 0);
  EXPECT_EQ(of({"aten::_softmax", "aten::sum.dim_IntList"}), 0);
}

TEST(DrawGroups, ProductsKeepCleanRowsAndColumns) {
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

TEST(DrawGroups, GroupsThatOneElementDecides) {
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

TEST(DrawGroups, MaximaGetVeryLowNumbers) {
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
  // With one group, the constant patterns come first, whatever the seed.
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

}  // namespace
}  // namespace cudaforge
