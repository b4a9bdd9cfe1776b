#include "verify/inputs.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "signature/roles.h"
#include "tests/cpp/verify/made_inputs.h"
#include "verify/elements.h"

namespace cudaforge {
namespace {

TEST(Elements, RoundTripOfEveryHalf) {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const char in[2] = {static_cast<char>(bits & 255), static_cast<char>(bits >> 8)};
      const double value = LoadElement(dtype, in);
      char out[2];
      StoreElement(dtype, value, out);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(LoadElement(dtype, out)));
      } else {
        ASSERT_EQ(std::string(in, 2), std::string(out, 2)) << DTypeName(dtype) << " " << bits;
      }
    }
  }
}

TEST(Elements, RoundingAndSpacing) {
  EXPECT_EQ(RoundTo(DType::kFloat16, 65519.9), 65504);
  EXPECT_TRUE(std::isinf(RoundTo(DType::kFloat16, 65520)));
  EXPECT_EQ(RoundTo(DType::kFloat16, 2049), 2048);  // to even
  EXPECT_EQ(RoundTo(DType::kBFloat16, 257), 256);
  EXPECT_EQ(UlpOf(DType::kFloat32, 1), 0x1p-23);
  EXPECT_EQ(UlpOf(DType::kFloat32, 0), 0x1p-149);
  EXPECT_EQ(UlpOf(DType::kFloat16, 1e-9), 0x1p-24);
  EXPECT_EQ(UlpOf(DType::kFloat64, 1.5), 0x1p-52);
}

TEST(Elements, PartsOfAWalkMakeTheWhole) {
  TensorSpec spec = Spec(DType::kFloat32, {3, 1, 5, 2});
  spec.strides = {0, 7, 4, 1};
  for (bool skip_repeats : {false, true}) {
    for (int64_t cut : {0, 1, 5, 10}) {
      ElementWalk whole(spec, skip_repeats);
      const int64_t n = whole.left();
      for (auto [begin, end] : {std::pair{int64_t{0}, cut}, std::pair{cut, n}}) {
        ElementWalk part(spec, skip_repeats, begin, end);
        for (; !part.done(); part.Next(), whole.Next()) {
          ASSERT_EQ(part.index(), whole.index());
          ASSERT_EQ(part.offset(), whole.offset());
          ASSERT_EQ(part.row(), whole.row());
          ASSERT_EQ(part.column(), whole.column());
        }
      }
      EXPECT_TRUE(whole.done());
    }
  }
}

TEST(Inputs, ThreadsDoNotChangeThem) {
  const OpSignature signature = OneInput(Spec(DType::kBFloat16, {700, 300}));
  const InputSet set = Make(signature, InputKind::kMixed);
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  CPU_ZERO(&one);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &all)) ++cpu;
  CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const InputSet alone = Make(signature, InputKind::kMixed);
  ASSERT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
  EXPECT_TRUE(alone.bytes == set.bytes);
  EXPECT_NE(set.bytes[0].substr(0, 1000), set.bytes[0].substr(300 * 218 * 2, 1000))
      << "chunks differ";
}

TEST(Inputs, DeterministicAndDifferentBySeed) {
  const OpSignature signature = OneInput(Spec(DType::kFloat32, {8, 32}));
  for (InputKind kind : KindsFor(signature)) {
    EXPECT_EQ(Make(signature, kind).bytes, Make(signature, kind).bytes);
    if (kind != InputKind::kAllEqual) {
      EXPECT_NE(Make(signature, kind, 1).bytes, Make(signature, kind, 2).bytes);
    }
  }
  EXPECT_GE(KindsFor(signature).size(), 6u);
}

// x + w, with w smaller than x.
OpSignature WithOperand(TensorSpec x, TensorSpec w) {
  OpSignature signature = OneInput(std::move(x));
  signature.inputs.push_back(std::move(w));
  signature.nodes[0].op = "aten::add.Tensor";
  signature.nodes[0].args = Json::array({{{"in", 0}}, {{"in", 1}}});
  return signature;
}

TEST(Inputs, SmallOperandsGetSpecialValuesOfTheirOwn) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{64}, {3}, {}}) {
    const TensorSpec small = Spec(DType::kFloat32, sizes);
    const OpSignature signature = WithOperand(Spec(DType::kFloat32, {16, 64}), small);
    const std::vector<InputKind> kinds = KindsFor(signature);
    for (InputKind kind : {InputKind::kNanOperands, InputKind::kInfiniteOperands}) {
      EXPECT_EQ(std::count(kinds.begin(), kinds.end(), kind), 1);
      const InputSet set = Make(signature, kind);
      int special = 0, ordinary = 0;
      for (double value : Values(small, set.bytes[1])) {
        const bool is_nan = std::isnan(value);
        (kind == InputKind::kNanOperands ? is_nan : std::isinf(value)) ? ++special : ++ordinary;
      }
      EXPECT_EQ(special, std::min<int64_t>(small.numel(), 4));
      EXPECT_EQ(special + ordinary, small.numel());
      for (double value : Values(signature.inputs[0], set.bytes[0])) {
        EXPECT_TRUE(std::isfinite(value));
      }
    }
    int zeros = 0, denormals = 0;
    for (uint64_t seed = 0; seed < 32; ++seed) {
      const InputSet set = Make(signature, InputKind::kZerosDenormals, seed);
      for (double value : Values(small, set.bytes[1])) {
        zeros += value == 0;
        denormals += value != 0 && std::fabs(value) < 1e-38;
      }
    }
    EXPECT_GT(zeros, 0);
    if (small.numel() > 1) {
      EXPECT_GT(denormals, 0);
    }
  }
  const TensorSpec same = Spec(DType::kFloat32, {16, 64});
  const std::vector<InputKind> kinds = KindsFor(WithOperand(same, same));
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), InputKind::kNanOperands), 0);
}

// A set whose small operands are all of a role that takes no such values would be another normal
// one.
TEST(Inputs, SetsOfSmallOperandsAreForOperandsThatTakeTheirValues) {
  OpSignature signature;
  const TensorSpec rows = Spec(DType::kFloat32, {16, 64});
  const TensorSpec weight = Spec(DType::kFloat32, {64});
  signature.inputs = {rows, weight};
  signature.nodes.resize(1);
  signature.nodes[0] = {"aten::native_group_norm",
                        {{{"in", 0}}, {{"in", 1}}, nullptr, 16, 64, 1, 8, 1e-5},
                        Json::object(),
                        {rows, Spec(DType::kFloat32, {16, 8}), Spec(DType::kFloat32, {16, 8})}};
  signature.outputs = {{0, 0}};
  ASSERT_EQ(FindRoles(signature)->at(1).kind, InputRole::Kind::kWeight);
  auto count = [](const OpSignature& of, InputKind kind) {
    const std::vector<InputKind> kinds = KindsFor(of);
    return std::count(kinds.begin(), kinds.end(), kind);
  };
  EXPECT_EQ(count(signature, InputKind::kNanOperands), 1);
  EXPECT_EQ(count(signature, InputKind::kInfiniteOperands), 0);
  signature.inputs.push_back(weight);  // an ordinary operand beside the weight
  EXPECT_EQ(count(signature, InputKind::kInfiniteOperands), 1);
}

constexpr const char* kAttention = "aten::scaled_dot_product_attention";
constexpr const char* kCpuAttention = "aten::_scaled_dot_product_flash_attention_for_cpu";

// Of two heads, with so many keys; with a mask of those where `masked`.
OpSignature Attention(const char* op, DeviceType device, int64_t keys, bool causal, bool masked) {
  OpSignature signature;
  signature.device = device;
  const TensorSpec spec = Spec(DType::kFloat32, {1, 2, keys, 64});
  signature.inputs = {spec, spec, spec};
  if (masked) signature.inputs.push_back(Spec(DType::kFloat32, {1, 1, keys, keys}));
  const Json mask = masked ? Json{{"in", 3}} : Json();
  Node node = {op, {{{"in", 0}}, {{"in", 1}}, {{"in", 2}}}, Json::object(), {spec}};
  if (op == kCpuAttention) {
    node.kwargs["attn_mask"] = mask;
  } else {
    node.args.push_back(mask);
  }
  node.args.push_back(0.0);
  node.args.push_back(causal);
  signature.nodes = {node};
  signature.outputs = {{0, 0}};
  return signature;
}

// Which of query, key and value get NaN in a set, "qkv"; none gets infinities.
std::string WithNan(const OpSignature& signature, InputKind kind) {
  const InputSet made = Make(signature, kind);
  std::string found;
  for (size_t i = 0; i < 3; ++i) {
    const auto values = Values(signature.inputs[i], made.bytes[i]);
    EXPECT_EQ(std::count_if(values.begin(), values.end(), [](double v) { return std::isinf(v); }),
              0);
    if (std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); })) {
      found += "qkv"[i];
    }
  }
  return found;
}

// Where PyTorch's own kernels for attention differ in what they make of a number, nothing is proven
// by it.
TEST(Inputs, AttentionGetsNanWhereItIsSeen) {
  for (const char* op : {kAttention, kCpuAttention}) {
    for (const DeviceType device : {DeviceType::kCpu, DeviceType::kCuda}) {
      const auto nan = [&](int64_t keys, bool causal, bool masked, InputKind kind) {
        return WithNan(Attention(op, device, keys, causal, masked), kind);
      };
      EXPECT_EQ(nan(16, false, false, InputKind::kSpecialValues), "q");
      EXPECT_EQ(nan(16, false, false, InputKind::kNanOperands), "k");
      EXPECT_EQ(nan(16, false, false, InputKind::kInfiniteOperands), "v");
      EXPECT_EQ(nan(16, true, false, InputKind::kNanOperands), "");
      EXPECT_EQ(nan(16, false, true, InputKind::kNanOperands), "");
      const bool loses = device == DeviceType::kCpu;
      const auto tries_operands = [&](int64_t keys, bool causal) {
        const OpSignature signature = Attention(op, device, keys, causal, false);
        const auto kinds = InputKindsFor(signature, FindRoles(signature).value());
        return std::count(kinds.begin(), kinds.end(), InputKind::kNanOperands) == 1 &&
               std::count(kinds.begin(), kinds.end(), InputKind::kInfiniteOperands) == 1;
      };
      EXPECT_TRUE(tries_operands(16, false));
      EXPECT_FALSE(tries_operands(16, true));
      EXPECT_EQ(tries_operands(15, false), !loses);
      EXPECT_EQ(nan(15, false, false, InputKind::kSpecialValues), loses ? "" : "q");
      EXPECT_EQ(nan(15, false, false, InputKind::kNanOperands), loses ? "" : "k");
      EXPECT_EQ(nan(15, false, false, InputKind::kInfiniteOperands), loses ? "" : "v");
      OpSignature decoding = Attention(op, device, 16, false, false);
      decoding.inputs[0] = Spec(DType::kFloat32, {1, 2, 1, 64});
      EXPECT_EQ(WithNan(decoding, InputKind::kNanOperands), "k");
      EXPECT_EQ(WithNan(decoding, InputKind::kInfiniteOperands), "qv");
    }
  }
}

// -infinity at the beginning of a row is what kernels that go over keys in blocks get wrong.
TEST(Inputs, AttentionMasksHideKeysInEveryWay) {
  const auto rows_that = [](const std::vector<double>& values, const auto& holds) {
    int rows = 0;
    for (size_t row = 0; row < values.size() / 16; ++row) rows += holds(&values[row * 16]);
    return rows;
  };
  const auto hidden = [](const double* row) { return std::count(row, row + 16, -INFINITY); };
  const auto lowest = [](const double* row) {
    return std::count(row, row + 16, -std::numeric_limits<float>::max());
  };
  for (const char* op : {kAttention, kCpuAttention}) {
    for (const DeviceType device : {DeviceType::kCpu, DeviceType::kCuda}) {
      const OpSignature signature = Attention(op, device, 16, false, true);
      for (const InputKind kind :
           {InputKind::kNormal, InputKind::kSpecialValues, InputKind::kMixed}) {
        const auto values = Values(signature.inputs[3], Make(signature, kind).bytes[3]);
        EXPECT_GE(rows_that(values, [&](const double* row) { return hidden(row) == 16; }), 2);
        EXPECT_GE(rows_that(values, [&](const double* row) { return hidden(row) == 15; }), 2);
        EXPECT_GE(rows_that(values, [&](const double* row) { return hidden(row) == 0; }), 2);
        EXPECT_GE(rows_that(values, [&](const double* row) { return lowest(row) == 16; }), 2);
        EXPECT_GE(rows_that(values, [&](const double* row) { return lowest(row) == 15; }), 2);
        EXPECT_GE(rows_that(values, [&](const double* row) { return std::isinf(row[0]); }), 4);
        EXPECT_GE(rows_that(values, [&](const double* row) { return std::isinf(row[15]); }), 4);
      }
    }
  }
}

// masked_fill, or where with its numbers the other way round: which boolean hides is not told.
TEST(Inputs, BooleansThatAMaskIsMadeOfHideKeysInEveryWay) {
  for (const DeviceType device : {DeviceType::kCpu, DeviceType::kCuda}) {
    OpSignature signature = Attention(kAttention, device, 16, false, true);
    signature.inputs[3].dtype = DType::kBool;
    Node attention = signature.nodes[0];
    attention.args[3] = {{"node", 1}, {"out", 0}};
    const TensorSpec mask = Spec(DType::kFloat32, {1, 1, 16, 16});
    Node inverted = {"aten::logical_not", {{{"in", 3}}}, Json::object(), {signature.inputs[3]}};
    Node filled = {"aten::where.ScalarOther",
                   {{{"node", 0}, {"out", 0}}, -INFINITY, 0.0},
                   Json::object(),
                   {mask}};
    signature.nodes = {inverted, filled, attention};
    signature.outputs = {{2, 0}};
    for (const InputKind kind :
         {InputKind::kNormal, InputKind::kAllEqual, InputKind::kSpecialValues}) {
      const auto values = Values(signature.inputs[3], Make(signature, kind).bytes[3]);
      std::map<int64_t, int> rows;  // by how many are true
      int front = 0, back = 0;
      for (size_t row = 0; row < 16; ++row) {
        const double* const bits = &values[row * 16];
        ++rows[std::count(bits, bits + 16, 1.0)];
        front += bits[0] == 0;
        back += bits[0] == 1;
      }
      EXPECT_GE(std::min(front, back), 4);
      EXPECT_GE(rows[1], 2);
      EXPECT_GE(rows[15], 2);
      EXPECT_GE(rows[0], 2);
      EXPECT_GE(rows[16], 2);
    }
  }
}

TEST(Inputs, MasksOfTwoAndOfOneColumnHideWholeRows) {
  OpSignature joined = Attention(kAttention, DeviceType::kCpu, 16, false, true);
  joined.inputs[3] = Spec(DType::kBool, {1, 1, 16, 16});
  joined.inputs.push_back(joined.inputs[3]);
  Node attention = joined.nodes[0];
  attention.args[3] = {{"node", 1}, {"out", 0}};
  const TensorSpec mask = Spec(DType::kFloat32, {1, 1, 16, 16});
  joined.nodes = {
      {"aten::bitwise_and.Tensor", {{{"in", 3}}, {{"in", 4}}}, Json::object(), {joined.inputs[3]}},
      {"aten::where.ScalarOther",
       {{{"node", 0}, {"out", 0}}, 0.0, -INFINITY},
       Json::object(),
       {mask}},
      attention};
  joined.outputs = {{2, 0}};
  const InputSet made = Make(joined, InputKind::kNormal);
  const auto a = Values(joined.inputs[3], made.bytes[3]),
             b = Values(joined.inputs[4], made.bytes[4]);
  int hidden = 0;
  for (size_t row = 0; row < 16; ++row) {
    bool any = false;
    for (size_t c = row * 16; c < row * 16 + 16; ++c) any = any || (a[c] == 1 && b[c] == 1);
    hidden += !any;
  }
  EXPECT_GE(hidden, 2);

  for (const DeviceType device : {DeviceType::kCpu, DeviceType::kCuda}) {
    OpSignature narrow = Attention(kAttention, device, 16, false, true);
    narrow.inputs[3] = Spec(DType::kFloat32, {1, 1, 16, 1});
    const auto values = Values(narrow.inputs[3], Make(narrow, InputKind::kNormal).bytes[3]);
    const auto all = std::count(values.begin(), values.end(), -INFINITY);
    EXPECT_EQ(all, 2);
  }
}

TEST(Inputs, AttentionOfUnknownArgumentsIsNotJudged) {
  OpSignature signature = Attention(kAttention, DeviceType::kCpu, 16, false, true);
  signature.nodes[0].op = "aten::_native_multi_head_attention";
  EXPECT_EQ(FindRoles(signature).status().code(), StatusCode::kUnsupported);
}

TEST(Inputs, SpecialRowsAreFewAndTheOthersClean) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    const TensorSpec spec = Spec(dtype, {16, 64});
    const auto values = Values(spec, Make(OneInput(spec), InputKind::kSpecialValues).bytes[0]);
    int nan = 0, plus = 0, minus = 0, clean_rows = 0;
    for (size_t row = 0; row < 16; ++row) {
      bool clean = true;
      for (size_t c = 0; c < 64; ++c) {
        const double value = values[row * 64 + c];
        nan += std::isnan(value);
        plus += value == INFINITY;
        minus += value == -INFINITY;
        clean = clean && std::isfinite(value);
      }
      clean_rows += clean;
    }
    EXPECT_GT(nan, 0);
    EXPECT_GT(plus, 0);
    EXPECT_GT(minus, 0);
    EXPECT_GE(clean_rows, 8);
  }
}

TEST(Inputs, DenormalsAndSignedZeros) {
  const TensorSpec spec = Spec(DType::kFloat16, {8, 64});
  int denormals = 0, minus_zeros = 0;
  for (double v : Values(spec, Make(OneInput(spec), InputKind::kZerosDenormals).bytes[0])) {
    denormals += v != 0 && std::fabs(v) < 0x1p-14;
    minus_zeros += v == 0 && std::signbit(v);
  }
  EXPECT_GT(denormals, 0);
  EXPECT_GT(minus_zeros, 0);
}

TEST(Inputs, RowsOfVeryDifferentScale) {
  const TensorSpec spec = Spec(DType::kFloat32, {7, 64});
  const auto values = Values(spec, Make(OneInput(spec), InputKind::kRowScales).bytes[0]);
  double smallest = INFINITY, largest = 0;
  for (size_t row = 0; row < 7; ++row) {
    double top = 0;
    for (size_t c = 0; c < 64; ++c) top = std::max(top, std::fabs(values[row * 64 + c]));
    smallest = std::min(smallest, top);
    largest = std::max(largest, top);
  }
  EXPECT_LT(smallest, 0x1p-25);
  EXPECT_GT(largest, 0x1p28);
}

TEST(Inputs, IntegersOfEveryMagnitude) {
  for (const DType dtype : {DType::kInt64, DType::kInt32}) {
    OpSignature signature = OneInput(Spec(dtype, {64, 64}));
    signature.nodes[0].args = Json::array({{{"in", 0}}, 12345678});
    signature.nodes[0].outputs = {Spec(dtype, {64, 64})};
    signature.outputs = {{0, 0}};
    const auto values =
        Values(signature.inputs[0], Make(signature, InputKind::kRowScales).bytes[0]);
    const double top = dtype == DType::kInt64 ? 0x1p62 : 0x1p30;
    const auto count = [&](double low, double high) {
      return std::count_if(values.begin(), values.end(),
                           [&](double v) { return std::fabs(v) >= low && std::fabs(v) < high; });
    };
    EXPECT_GT(count(0, 0x1p10), 100);
    EXPECT_GT(count(top / 16, top), 100);
    EXPECT_EQ(count(top, INFINITY), 0);
    EXPECT_GT(count(12345677, 12345680), 100);  // the constant and its neighbours
    // Where a number is floating, sums of these would tell nothing.
    signature.nodes[0].outputs[0].dtype = DType::kFloat32;
    const auto small = Values(signature.inputs[0], Make(signature, InputKind::kRowScales).bytes[0]);
    EXPECT_LE(*std::max_element(small.begin(), small.end()), 0x1p19);
  }
}

TEST(Inputs, StridesLeaveNanBetween) {
  TensorSpec spec = Spec(DType::kFloat32, {4, 8});
  spec.strides = {20, 2};
  const InputSet set = Make(OneInput(spec), InputKind::kNormal);
  EXPECT_EQ(static_cast<int64_t>(set.bytes[0].size()), spec.StorageBytes());
  EXPECT_EQ(set.bytes[0].substr(4, 4), std::string(4, '\xff'));
  for (double value : Values(spec, set.bytes[0])) EXPECT_TRUE(std::isfinite(value));
}

TEST(Inputs, ExpandedDimensionsShareMemory) {
  TensorSpec spec = Spec(DType::kFloat32, {1000, 8});
  spec.strides = {0, 1};
  const InputSet set = Make(OneInput(spec), InputKind::kNormal);
  EXPECT_EQ(set.bytes[0].size(), 32u);
  const auto moved = Perturbed(spec, set.bytes[0], 3);
  ASSERT_EQ(moved.size(), 8000u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(moved[i], moved[i + 80]);
}

TEST(Inputs, ZeroSizeAndScalar) {
  EXPECT_EQ(Make(OneInput(Spec(DType::kFloat32, {0, 8})), InputKind::kNormal).bytes[0], "");
  EXPECT_EQ(Make(OneInput(Spec(DType::kFloat32, {})), InputKind::kMixed).bytes[0].size(), 4u);
}

TEST(Inputs, MisalignedNoFurtherThanPromised) {
  TensorSpec spec = Spec(DType::kFloat16, {8});
  spec.alignment = 16;
  const OpSignature signature = OneInput(spec);
  std::set<int64_t> seen;
  for (InputKind kind : KindsFor(signature)) {
    const int64_t offset = Make(signature, kind).offsets[0];
    EXPECT_EQ(offset % 16, 0);
    seen.insert(offset);
  }
  EXPECT_EQ(seen, (std::set<int64_t>{0, 16}));
}

TEST(Inputs, PerturbedByAtMostOneRoundingUnit) {
  const TensorSpec spec = Spec(DType::kFloat32, {1000});
  const std::string bytes = Make(OneInput(spec), InputKind::kNormal).bytes[0];
  const auto values = Values(spec, bytes);
  const auto moved = Perturbed(spec, bytes, 5);
  int changed = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(std::fabs(moved[i] - values[i]), std::fabs(values[i]) * 0x1.0001p-24);
    changed += moved[i] != values[i];
  }
  EXPECT_GT(changed, 900);
}

TEST(Inputs, PerturbedDenormalsMoveByHalfTheirSpacing) {
  const TensorSpec spec = Spec(DType::kFloat32, {4});
  const float values[] = {0x1p-149F, -0x1p-140F, 0.0F, -0.0F};
  const std::string bytes(reinterpret_cast<const char*>(values), sizeof(values));
  const auto moved = Perturbed(spec, bytes, 5);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(std::fabs(moved[i] - values[i]), 0x1p-150, 0x1p-160) << i;
  }
  EXPECT_EQ(moved[2], 0);
  EXPECT_EQ(moved[3], 0);
}

TEST(Roles, TargetsOfNllLoss) {
  OpSignature signature;
  signature.inputs = {Spec(DType::kFloat32, {512, 10}), Spec(DType::kInt64, {512})};
  signature.nodes.resize(1);
  signature.nodes[0].op = "aten::nll_loss_forward";
  signature.nodes[0].args = Json::array({{{"in", 0}}, {{"in", 1}}, nullptr, 1, -7});
  signature.nodes[0].outputs = {Spec(DType::kFloat32, {}), Spec(DType::kFloat32, {})};
  signature.outputs = {{0, 0}};
  std::set<double> seen;
  for (InputKind kind : KindsFor(signature)) {
    for (double v : Values(signature.inputs[1], Make(signature, kind).bytes[1])) {
      EXPECT_TRUE((v >= 0 && v < 10) || v == -7) << v;
      seen.insert(v);
    }
  }
  EXPECT_EQ(seen.size(), 11u);
}

TEST(Roles, PassThroughViewsAndUnknownIndices) {
  OpSignature signature;
  signature.inputs = {Spec(DType::kFloat32, {5, 8}), Spec(DType::kInt64, {6})};
  signature.nodes.resize(2);
  signature.nodes[0].op = "aten::view";
  signature.nodes[0].args = Json::array({{{"in", 1}}, Json::array({2, 3})});
  signature.nodes[0].outputs = {Spec(DType::kInt64, {2, 3})};
  signature.nodes[1].op = "aten::embedding";
  signature.nodes[1].args = Json::array({{{"in", 0}}, {{"node", 0}, {"out", 0}}, -1, false, false});
  signature.nodes[1].outputs = {Spec(DType::kFloat32, {2, 3, 8})};
  const auto roles = FindRoles(signature);
  ASSERT_TRUE(roles.ok());
  EXPECT_EQ((*roles)[1].kind, InputRole::Kind::kIndex);
  EXPECT_EQ((*roles)[1].limit, 5);
  signature.nodes[1].op = "aten::index_add";
  EXPECT_EQ(FindRoles(signature).status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace cudaforge
