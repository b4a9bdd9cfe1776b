// Inputs of each role: operands, weights, attention, masks, labels, indices, ranges.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "tests/cpp/verify/drawn_numbers.h"

namespace cudaforge {
namespace {

constexpr const char* kSdpa = "aten::scaled_dot_product_attention";
constexpr const char* kCpuSdpa = "aten::_scaled_dot_product_flash_attention_for_cpu";

TEST(DrawRoles, SmallOperandsGetSpecialValues) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{64}, {3}, {}}) {
    const OpSignature signature = Call("aten::add.Tensor", {Arg(0), Arg(1)},
                                       {Floats({16, 64}), Floats(sizes)}, {Floats({16, 64})});
    const int64_t most = std::min<int64_t>(signature.inputs[1].numel(), 4);
    const Drawn nan = DrawNamed(signature, "nan_operands").at(0);
    const Drawn infinite = DrawNamed(signature, "infinite_operands").at(0);
    const Numbers nans = DrawnValues(signature.inputs[1], nan.bytes[1]);
    const Numbers infinities = DrawnValues(signature.inputs[1], infinite.bytes[1]);
    EXPECT_EQ(Count(nans, IsNan), most);
    EXPECT_TRUE(IsNan(nans.back()));
    EXPECT_EQ(Count(infinities, IsInfinite), most);
    EXPECT_TRUE(IsInfinite(infinities.front()));
    for (const Drawn& drawn : {nan, infinite}) {
      for (const double v : DrawnValues(signature.inputs[0], drawn.bytes[0])) {
        EXPECT_TRUE(std::isfinite(v));
      }
    }
    int64_t zeros = 0, denormals = 0;
    for (uint64_t seed = 0; seed < 32; ++seed) {
      const Drawn drawn = DrawNamed(signature, "zeros_denormals", seed).at(0);
      const Numbers values = DrawnValues(signature.inputs[1], drawn.bytes[1]);
      zeros += Count(values, [](double v) { return v == 0; });
      denormals += Count(values, [](double v) { return v != 0 && std::fabs(v) < 0x1p-126; });
    }
    EXPECT_GT(zeros, 0);
    EXPECT_GT(denormals, 0);
  }
  const TensorSpec same = Floats({16, 64});
  EXPECT_EQ(
      CountNamed(Call("aten::add.Tensor", {Arg(0), Arg(1)}, {same, same}, {same}), "nan_operands"),
      0);
}

TEST(DrawRoles, WeightsGetOnlyNan) {
  const TensorSpec rows = Floats({16, 64}), weight = Floats({64});
  OpSignature signature =
      Call("aten::native_group_norm", {Arg(0), Arg(1), nullptr, 16, 64, 1, 8, 1e-5}, {rows, weight},
           {rows, Floats({16, 8}), Floats({16, 8})});
  EXPECT_EQ(CountNamed(signature, "nan_operands"), 1);
  EXPECT_EQ(CountNamed(signature, "infinite_operands"), 0);
  for (const Drawn& drawn : DrawAll(signature)) {
    for (const double v : DrawnValues(weight, drawn.bytes[1])) {
      EXPECT_FALSE(std::isinf(v)) << drawn.set.name;
      EXPECT_FALSE(v != 0 && std::fabs(v) < 1e-30) << drawn.set.name;  // no denormals
    }
  }
  signature.inputs.push_back(weight);  // an ordinary operand next to the weight
  EXPECT_EQ(CountNamed(signature, "infinite_operands"), 1);
}

OpSignature AttentionOf(DeviceType device, int64_t keys, bool causal, bool masked,
                        DType mask = DType::kFloat32, const char* op = kSdpa) {
  const TensorSpec spec = Floats({1, 2, keys, 64});
  std::vector<TensorSpec> inputs = {spec, spec, spec};
  if (masked) inputs.push_back(Spec(mask, {1, 1, keys, keys}));
  const Json given = masked ? Arg(3) : Json();
  OpSignature signature =
      op == kSdpa
          ? Call(op, {Arg(0), Arg(1), Arg(2), given, 0.0, causal}, inputs, {spec})
          : Call(op, {Arg(0), Arg(1), Arg(2), 0.0, causal}, inputs, {spec}, {{"attn_mask", given}});
  signature.device = device;
  return signature;
}

// Returns which of query, key and value have NaN in sets with this prefix. None may have
// infinities.
std::string WithNanIn(const OpSignature& signature, std::string_view name) {
  std::string found;
  for (size_t i = 0; i < 3; ++i) {
    bool nan = false;
    for (const Drawn& drawn : DrawAll(signature)) {
      const Numbers values = DrawnValues(signature.inputs[i], drawn.bytes[i]);
      EXPECT_EQ(Count(values, IsInfinite), 0) << drawn.set.name;
      if (drawn.set.name.starts_with(name)) nan = nan || Count(values, IsNan) > 0;
    }
    if (nan) found += "qkv"[i];
  }
  return found;
}

TEST(DrawRoles, AttentionGetsVisibleNan) {
  for (const DeviceType device : {DeviceType::kCpu, DeviceType::kCuda}) {
    const bool loses = device == DeviceType::kCpu;
    const OpSignature plain = AttentionOf(device, 16, false, false);
    EXPECT_EQ(WithNanIn(plain, "special_rows"), "q");
    EXPECT_EQ(WithNanIn(plain, "nan_operands"), "k");
    EXPECT_EQ(WithNanIn(plain, "infinite_operands"), "v");
    EXPECT_EQ(WithNanIn(plain, "one_special"), "");
    for (const auto& [causal, masked] : {std::pair{true, false}, {false, true}}) {
      const OpSignature hiding = AttentionOf(device, 16, causal, masked);
      EXPECT_EQ(WithNanIn(hiding, ""), "q");
      EXPECT_EQ(CountNamed(hiding, "nan_operands") + CountNamed(hiding, "infinite_operands"), 0);
    }
    EXPECT_EQ(WithNanIn(AttentionOf(device, 15, false, false), ""), loses ? "" : "qkv");
    OpSignature decoding = AttentionOf(device, 16, false, false);
    decoding.inputs[0] = Floats({1, 2, 1, 64});
    EXPECT_EQ(WithNanIn(decoding, "nan_operands"), "k");
    EXPECT_EQ(WithNanIn(decoding, "infinite_operands"), "qv");
  }
  // PyTorch's CPU kernel, with other positions of arguments.
  const auto of_kernel = [](bool causal, bool masked) {
    return AttentionOf(DeviceType::kCpu, 16, causal, masked, DType::kFloat32, kCpuSdpa);
  };
  EXPECT_EQ(WithNanIn(of_kernel(false, false), "nan_operands"), "k");
  EXPECT_EQ(WithNanIn(of_kernel(false, false), "infinite_operands"), "v");
  EXPECT_EQ(WithNanIn(of_kernel(true, false), ""), "q");
  EXPECT_EQ(WithNanIn(of_kernel(false, true), ""), "q");
}

void ExpectMasksInEveryWay(const OpSignature& signature) {
  constexpr double kLowest = -std::numeric_limits<float>::max();
  for (const Drawn& drawn : DrawAll(signature)) {
    const Numbers values = DrawnValues(signature.inputs[3], drawn.bytes[3]);
    std::map<std::pair<int64_t, int64_t>, int> rows;  // by number of -infinity, the lowest
    int front = 0, back = 0;
    for (size_t row = 0; row < 16; ++row) {
      const double* const of_row = &values[row * 16];
      ++rows[{std::count(of_row, of_row + 16, -INFINITY),
              std::count(of_row, of_row + 16, kLowest)}];
      front += std::isinf(of_row[0]);
      back += std::isinf(of_row[15]);
    }
    for (const std::pair<int64_t, int64_t> what :
         {std::pair{16, 0}, {15, 0}, {0, 0}, {0, 16}, {0, 15}, {8, 0}, {7, 0}}) {
      EXPECT_GE(rows[what], 2) << drawn.set.name << " " << what.first << " " << what.second;
    }
    EXPECT_GE(front, 4);
    EXPECT_GE(back, 4);
  }
}

TEST(DrawRoles, MasksHideKeysInEveryWay) {
  ExpectMasksInEveryWay(AttentionOf(DeviceType::kCuda, 16, false, true));
  ExpectMasksInEveryWay(AttentionOf(DeviceType::kCpu, 16, false, true, DType::kFloat32, kCpuSdpa));
  OpSignature narrow = AttentionOf(DeviceType::kCuda, 16, false, true);
  narrow.inputs[3] = Floats({1, 1, 16, 1});
  EXPECT_EQ(Count(DrawnValues(narrow.inputs[3], DrawAll(narrow)[0].bytes[3]), IsInfinite), 2);
}

TEST(DrawRoles, BooleanMasksHideKeysInEveryWay) {
  const OpSignature given = AttentionOf(DeviceType::kCuda, 16, false, true, DType::kBool);
  // masked_fill, and the reverse: which boolean masks is unknown.
  OpSignature filled = given;
  Node attention = given.nodes[0];
  attention.args[3] = {{"node", 1}, {"out", 0}};
  filled.nodes = {{"aten::logical_not", {Arg(3)}, Json::object(), {given.inputs[3]}},
                  {"aten::where.ScalarOther",
                   {{{"node", 0}, {"out", 0}}, -INFINITY, 0.0},
                   Json::object(),
                   {Floats({1, 1, 16, 16})}},
                  attention};
  filled.outputs = {{2, 0}};
  for (const OpSignature& signature : {given, filled}) {
    for (const Drawn& drawn : DrawAll(signature)) {
      const Numbers values = DrawnValues(signature.inputs[3], drawn.bytes[3]);
      std::map<int64_t, int> rows;
      for (size_t row = 0; row < 16; ++row) {
        ++rows[std::count(&values[row * 16], &values[row * 16] + 16, 1.0)];
      }
      for (const int64_t what : {0, 1, 15, 16}) EXPECT_GE(rows[what], 2) << drawn.set.name << what;
    }
  }
  // A combination of two still masks whole rows.
  OpSignature joined = filled;
  joined.inputs.push_back(joined.inputs[3]);
  joined.nodes[0] = {
      "aten::bitwise_and.Tensor", {Arg(3), Arg(4)}, Json::object(), {given.inputs[3]}};
  joined.nodes[1].args = {{{"node", 0}, {"out", 0}}, 0.0, -INFINITY};
  for (const Drawn& drawn : DrawAll(joined)) {
    const Numbers a = DrawnValues(joined.inputs[3], drawn.bytes[3]);
    const Numbers b = DrawnValues(joined.inputs[4], drawn.bytes[4]);
    int hidden = 0;
    for (size_t row = 0; row < 16; ++row) {
      bool any = false;
      for (size_t c = row * 16; c < row * 16 + 16; ++c) any = any || (a[c] == 1 && b[c] == 1);
      hidden += any ? 0 : 1;
    }
    EXPECT_GE(hidden, 2) << drawn.set.name;
  }
}

OpSignature NllLoss(int64_t rows) {
  return Call("aten::nll_loss_forward", {Arg(0), Arg(1), nullptr, 1, -7},
              {Floats({rows, 10}), Spec(DType::kInt64, {rows})}, {Floats({}), Floats({})});
}

TEST(DrawRoles, LabelsAreValidInEveryPattern) {
  for (const int64_t rows : {512, 1 << 17, 1 << 23}) {
    const OpSignature signature = NllLoss(rows);
    const std::vector<InputRole> roles = *FindRoles(signature);
    bool ignored = false, last = false, first = false, alike = false;
    std::set<int64_t> seen;
    const std::vector<DrawSet> sets = *PlanDraws(signature, roles, 3);
    for (const DrawSet& set : sets) {
      OpSignature labels;  // by themselves: large ones are not drawn here
      labels.inputs = {signature.inputs[1]};
      DrawSet of_labels = set;
      of_labels.tensors = {set.tensors[1]};
      const std::string bytes = DrawBytes(labels, of_labels, 3)[0];
      std::set<int64_t> in_set;
      for (size_t i = 0; i < bytes.size(); i += 8) {
        int64_t label;
        std::memcpy(&label, bytes.data() + i, sizeof(label));
        ASSERT_TRUE((label >= 0 && label < 10) || label == -7) << label;
        in_set.insert(label);
      }
      seen.insert(in_set.begin(), in_set.end());
      ignored = ignored || in_set == std::set<int64_t>{-7};
      first = first || in_set == std::set<int64_t>{0};
      last = last || in_set == std::set<int64_t>{9};
      alike = alike || (in_set.size() == 1 && *in_set.begin() >= 0);
    }
    EXPECT_EQ(seen.size(), 11u);
    EXPECT_TRUE(ignored);
    EXPECT_TRUE(rows != 512 || (first && last && alike));
  }
}

TEST(DrawRoles, IndicesAreValidInEveryPattern) {
  for (const DType dtype : {DType::kInt64, DType::kInt32}) {
    TensorSpec indices = Spec(dtype, {40, 3});
    indices.strides = {5, 1};  // gaps hold no valid index
    const OpSignature signature = Call("aten::embedding", {Arg(0), Arg(1), -1, false, false},
                                       {Floats({500, 8}), indices}, {Floats({40, 3, 8})});
    bool distinct = false, first = false, last = false, neighbours = false, ascending = false;
    for (const Drawn& drawn : DrawAll(signature)) {
      const Numbers values = DrawnValues(indices, drawn.bytes[1]);
      const std::set<double> in_set(values.begin(), values.end());
      for (const double v : values) ASSERT_TRUE(v >= 0 && v < 500);
      distinct = distinct || in_set.size() == values.size();
      first = first || in_set == std::set<double>{0};
      last = last || in_set == std::set<double>{499};
      ascending = ascending || std::is_sorted(values.begin(), values.begin() + 3);
      neighbours = neighbours || (drawn.set.name == "row_scales" && in_set.size() < 60);
    }
    EXPECT_TRUE(distinct && first && last && neighbours && ascending);
  }
}

TEST(DrawRoles, RangesOfRoles) {
  const TensorSpec spec = Floats({16, 200});
  const auto range = [&](const char* op, Json args, size_t input) {
    const OpSignature signature = Call(op, std::move(args), {spec, spec}, {spec});
    double low = INFINITY, high = -INFINITY;
    for (const Drawn& drawn : DrawAll(signature)) {
      for (const double v : DrawnValues(spec, drawn.bytes[input])) {
        EXPECT_TRUE(std::isfinite(v));
        low = std::min(low, v);
        high = std::max(high, v);
      }
    }
    return std::pair(low, high);
  };
  const auto [low, high] = range("aten::sigmoid_backward", {Arg(0), Arg(1)}, 1);
  EXPECT_TRUE(low > 0 && low < 1e-5 && high < 1 && high > 1 - 1e-5) << low << " " << high;
  const auto [least, most] = range("aten::tanh_backward", {Arg(0), Arg(1)}, 1);
  EXPECT_TRUE(least > -1 && least < -1 + 1e-5 && most < 1 && most > 1 - 1e-5);
  const auto [far, near] = range("aten::_log_softmax_backward_data", {Arg(0), Arg(1), 1, 6}, 1);
  EXPECT_TRUE(near < 0 && near > -1e-5 && far < -7 && far > -10);
}

}  // namespace
}  // namespace cudaforge
