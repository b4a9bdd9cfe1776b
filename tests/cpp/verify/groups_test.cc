#include "verify/groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "tests/cpp/verify/made_inputs.h"

namespace cudaforge {
namespace {

TEST(Groups, OneElementOfAGroupIsUnlike) {
  OpSignature signature = OneInput(Spec(DType::kFloat32, {4, 32, 7}));
  signature.nodes[0] = {"aten::any.dims",
                        {{{"in", 0}}, Json::array({0, -1}), false},
                        Json::object(),
                        {Spec(DType::kBool, {32})}};
  const std::vector<InputKind> kinds = KindsFor(signature);
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), InputKind::kOneUnlike), 1) << "32 groups";
  const TensorSpec& spec = signature.inputs[0];
  const std::vector<double> values = Values(spec, Make(signature, InputKind::kOneUnlike).bytes[0]);
  std::set<int64_t> places;
  std::set<double> backgrounds;
  for (int64_t group = 0; group < 32; ++group) {
    std::vector<double> members;
    for (int64_t n = 0; n < 4; ++n) {
      for (int64_t c = 0; c < 7; ++c) {
        members.push_back(values[static_cast<size_t>((n * 32 + group) * 7 + c)]);
      }
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
}

TEST(Groups, FewGroupsTakeTurns) {
  OpSignature signature = OneInput(Spec(DType::kBool, {9, 5}));
  signature.nodes[0] = {
      "aten::all", Json::array({{{"in", 0}}}), Json::object(), {Spec(DType::kBool, {})}};
  const std::vector<InputKind> kinds = KindsFor(signature);
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), InputKind::kOneUnlike), 8);
  const std::vector<InputRole> roles = *FindRoles(signature);
  std::set<std::string> sets;
  for (int turn = 0; turn < 8; ++turn) {
    sets.insert(MakeInputs(signature, roles, InputKind::kOneUnlike, 7, turn).bytes[0]);
  }
  EXPECT_GE(sets.size(), 5u);
  EXPECT_TRUE(sets.contains(std::string(45, '\0')));
  EXPECT_TRUE(sets.contains(std::string(44, '\1') + '\0'));
}

TEST(Groups, MaximaMeetNumbersFarBelow) {
  constexpr double kLowest = -std::numeric_limits<float>::max();
  OpSignature signature = OneInput(Spec(DType::kFloat32, {9, 24}));
  const auto of = [&](const char* op, Json args, TensorSpec out) {
    signature.nodes[0] = {op, std::move(args), Json::object(), {std::move(out)}};
    return KindsFor(signature);
  };
  const Json x = {{"in", 0}};
  const auto times = [](const std::vector<InputKind>& kinds) {
    return std::count(kinds.begin(), kinds.end(), InputKind::kFarOut);
  };
  // Columns: 24 groups of 9.
  EXPECT_EQ(times(of("aten::amax", {x, Json::array({0}), false}, Spec(DType::kFloat32, {24}))), 1);
  const auto values = Values(signature.inputs[0], Make(signature, InputKind::kFarOut).bytes[0]);
  // Rows of the lowest number, of -infinity, and of their opposites, which a region may negate.
  std::map<double, int> groups;
  for (int64_t group = 0; group < 24; ++group) {
    std::map<double, int> elements;
    for (int64_t i = 0; i < 9; ++i) ++elements[values[static_cast<size_t>(i * 24 + group)]];
    for (const auto& [value, count] : elements) {
      if (count == 9) ++groups[value];
      if (count >= 8) {
        EXPECT_TRUE(std::isinf(value) || std::abs(value) == -kLowest) << value;
      }
    }
    EXPECT_LE(elements.size(), 2u);
  }
  EXPECT_EQ(groups,
            (std::map<double, int>{{kLowest, 2}, {-INFINITY, 2}, {-kLowest, 2}, {INFINITY, 2}}));
  // One group: patterns in turn, each followed by its opposite. Of minima the opposite is first.
  EXPECT_EQ(times(of("aten::amin", {x, Json::array(), false}, Spec(DType::kFloat32, {}))), 8);
  const std::vector<InputRole> roles = *FindRoles(signature);
  const auto all_over = [&](int turn, double value) {
    const auto made = MakeInputs(signature, roles, InputKind::kFarOut, 7, turn);
    const auto of_turn = Values(signature.inputs[0], made.bytes[0]);
    return std::count(of_turn.begin(), of_turn.end(), value) == 9 * 24;
  };
  EXPECT_TRUE(all_over(0, -kLowest));
  EXPECT_TRUE(all_over(1, kLowest));
  EXPECT_TRUE(all_over(2, INFINITY));
  EXPECT_TRUE(all_over(3, -INFINITY));
  // A sum cannot take them.
  EXPECT_EQ(
      times(of("aten::sum.dim_IntList", {x, Json::array({0}), false}, Spec(DType::kFloat32, {24}))),
      0);
}

// The special elements of input `i`, by their places: {place, 'n', '+' or '-'}.
std::map<int64_t, char> Specials(const OpSignature& signature, int turn = 0, size_t i = 0) {
  const std::vector<InputRole> roles = *FindRoles(signature);
  const InputSet set = MakeInputs(signature, roles, InputKind::kOneSpecial, 7, turn);
  const std::vector<double> values = Values(signature.inputs[i], set.bytes[i]);
  std::map<int64_t, char> found;
  for (size_t at = 0; at < values.size(); ++at) {
    if (std::isfinite(values[at])) continue;
    found[static_cast<int64_t>(at)] = std::isnan(values[at]) ? 'n' : values[at] > 0 ? '+' : '-';
  }
  return found;
}

int64_t TurnsOfOneSpecial(const OpSignature& signature) {
  const std::vector<InputKind> kinds = KindsFor(signature);
  return std::count(kinds.begin(), kinds.end(), InputKind::kOneSpecial);
}

TEST(Groups, EachRowHasOneSpecialValueAndAllMeetEveryPlace) {
  for (const auto& [rows, length, turns] : {std::tuple{24, 1000, 1}, {240, 33, 1}, {3, 4096, 8}}) {
    const OpSignature signature = OneInput(Spec(DType::kFloat32, {rows, length}));
    ASSERT_EQ(TurnsOfOneSpecial(signature), turns);
    std::set<std::pair<int64_t, char>> met;
    for (int turn = 0; turn < turns; ++turn) {
      const std::map<int64_t, char> specials = Specials(signature, turn);
      ASSERT_EQ(static_cast<int>(specials.size()), rows);
      std::set<int64_t> in_rows;
      for (const auto& [at, what] : specials) {
        in_rows.insert(at / length);
        met.emplace(at % length, what);
      }
      EXPECT_EQ(static_cast<int>(in_rows.size()), rows);
    }
    for (const int64_t place : {0, length / 2 - 1, length / 2, length - 2, length - 1}) {
      for (const char what : {'n', '+', '-'}) {
        EXPECT_TRUE(met.contains({place, what})) << length << " " << place << what;
      }
    }
    for (const int64_t step : {8, 16, 32}) {
      const int64_t begin = (length - 1) / step * step;
      const auto at = [&](int64_t place) {
        return met.contains({place, 'n'}) || met.contains({place, '+'}) ||
               met.contains({place, '-'});
      };
      EXPECT_TRUE(at(begin) && at(begin - 1)) << length << " by " << step;
    }
  }
}

TEST(Groups, OneSpecialValueIsInWhatARegionTakesTogether) {
  OpSignature signature = OneInput(Spec(DType::kFloat32, {4, 6, 10}));
  const Json x = {{"in", 0}};
  const auto of = [&](const char* op, Json args, std::vector<int64_t> out) {
    signature.nodes[0] = {op, std::move(args), Json::object(), {Spec(DType::kFloat32, out)}};
    return TurnsOfOneSpecial(signature);
  };
  // Groups of each region, by the place of an element.
  EXPECT_EQ(of("aten::var.correction", {x, {0, 2}}, {6}), 4);
  std::set<int64_t> groups;
  for (const auto& [at, what] : Specials(signature)) groups.insert(at / 10 % 6);
  EXPECT_EQ(groups.size(), 6u);
  EXPECT_EQ(Specials(signature).size(), 6u);
  EXPECT_EQ(of("aten::native_layer_norm", {x, {6, 10}}, {4, 6, 10}), 6);
  EXPECT_EQ(Specials(signature).size(), 4u);
  EXPECT_EQ(of("aten::native_group_norm", {x, nullptr, nullptr, 4, 6, 10, 2}, {4, 6, 10}), 3);
  groups.clear();
  for (const auto& [at, what] : Specials(signature)) groups.insert(at / 30);
  EXPECT_EQ(groups.size(), 8u);
  EXPECT_EQ(Specials(signature).size(), 8u);
  EXPECT_EQ(of("aten::_softmax", {x, 1, false}, {4, 6, 10}), 1);
  EXPECT_EQ(Specials(signature).size(), 40u);
  // A single number is made of all of them: it would be NaN in every set.
  EXPECT_EQ(of("aten::exp", Json::array({x}), {4, 6, 10}), 1);
  EXPECT_EQ(Specials(signature).size(), 24u);
  EXPECT_EQ(of("aten::sum", Json::array({x}), {}), 8);
  EXPECT_EQ(Specials(signature).size(), 1u);
}

TEST(Groups, InputsOfOneSizeShareTheGroups) {
  OpSignature signature = OneInput(Spec(DType::kFloat32, {50, 40}));
  signature.inputs.push_back(signature.inputs[0]);
  signature.nodes[0].op = "aten::add.Tensor";
  signature.nodes[0].args.push_back({{"in", 1}});
  EXPECT_EQ(TurnsOfOneSpecial(signature), 1);
  std::set<int64_t> rows;
  for (size_t i = 0; i < 2; ++i) {
    const auto specials = Specials(signature, 0, i);
    EXPECT_EQ(specials.size(), 25u);
    for (const auto& [at, what] : specials) rows.insert(at / 40);
  }
  EXPECT_EQ(rows.size(), 50u);
  // One group: by turns.
  signature.nodes.push_back(
      {"aten::sum", {{{"node", 0}, {"out", 0}}}, Json::object(), {Spec(DType::kFloat32, {})}});
  signature.outputs = {{1, 0}};
  EXPECT_EQ(TurnsOfOneSpecial(signature), 8);
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(Specials(signature, turn, 0).size(), turn % 2 == 0 ? 1u : 0u);
    EXPECT_EQ(Specials(signature, turn, 1).size(), turn % 2 == 0 ? 0u : 1u);
  }
  signature.nodes.pop_back();
  signature.outputs = {{0, 0}};
  // What may not hold any number is left as it is, and smaller ones too.
  signature.inputs = {Spec(DType::kFloat32, {50, 40}), Spec(DType::kFloat32, {50, 40})};
  signature.nodes[0] = {"aten::_softmax_backward_data",
                        {{{"in", 0}}, {{"in", 1}}, 1},
                        Json::object(),
                        {signature.inputs[0]}};
  EXPECT_EQ(Specials(signature, 0, 0).size(), 50u);
  EXPECT_TRUE(Specials(signature, 0, 1).empty());
  signature.nodes[0] = {
      "aten::sigmoid_backward", {{{"in", 1}}, {{"in", 0}}}, Json::object(), {signature.inputs[0]}};
  signature.inputs[1].sizes = {1, 40};
  EXPECT_EQ(TurnsOfOneSpecial(signature), 0);
}

TEST(Groups, MasksAndArithmeticBesideMaximaAreNoObstacle) {
  OpSignature signature = OneInput(Spec(DType::kFloat32, {9, 24}));
  const auto of = [&](const std::vector<const char*>& ops) {
    signature.nodes.clear();
    for (const char* op : ops) {
      signature.nodes.push_back(
          {op, Json::array({{{"in", 0}}}), Json::object(), {signature.inputs[0]}});
    }
    return ExtremesOf(signature);
  };
  EXPECT_EQ(of({"aten::eq.Scalar", "aten::full", "aten::where.self", "aten::_softmax"}), 1);
  EXPECT_EQ(of({"aten::bitwise_not", "aten::full", "aten::where.self", "aten::amin"}), -1);
  EXPECT_EQ(of({"aten::gt.Scalar", "aten::mul.Tensor", "aten::where.self", "aten::amax"}), 1);
  EXPECT_EQ(of({"aten::pow.Tensor_Scalar", "aten::amax"}), 0);
  EXPECT_EQ(of({"aten::amax", "aten::amin"}), 0);
  EXPECT_EQ(of({"aten::_softmax", "aten::sum.dim_IntList"}), 0);
}

}  // namespace
}  // namespace cudaforge
