#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "signature/from_aten_region.h"

namespace cudaforge {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

struct MeanCall {
  std::string op;
  std::vector<int64_t> sizes;
  Json args;  // after the input
  Json kwargs = Json::object();
  std::vector<int64_t> over;  // of the input as it is or, where it is grouped, as groups
  std::vector<int64_t> grouped = {};
};

const std::vector<MeanCall> kCalls = {
    {"aten::var_mean.correction", {3, 40}, {{1}}, {{"correction", 0}, {"keepdim", false}}, {1}},
    {"aten::var_mean.correction", {3, 4, 5}, {{0, -1}}, {{"correction", 1}}, {0, 2}},
    {"aten::var_mean.correction", {3, 40}, Json::array({nullptr}), Json::object(), {0, 1}},
    {"aten::std_mean.dim", {3, 40}, {{-1}, true, true}, Json::object(), {1}},
    {"aten::var_mean", {3, 40}, Json::array({true}), Json::object(), {0, 1}},
    {"aten::native_layer_norm", {3, 4, 10}, {{4, 10}, nullptr, nullptr, 1e-5}, {}, {1, 2}},
    {"aten::native_group_norm",
     {2, 6, 5},
     {nullptr, nullptr, 2, 6, 5, 3, 1e-5},
     {},
     {2},
     {2, 3, 10}},
    {"aten::native_batch_norm",
     {3, 4, 5},
     {nullptr, nullptr, nullptr, nullptr, true, 0.1, 1e-5},
     {},
     {0, 2}},
};

// ATen's own answer, or the oracle's.
at::Tensor MeansOf(const MeanCall& call, const at::Tensor& input, bool fp64) {
  OpSignature signature;
  const auto spec = [](const at::Tensor& t) {
    return TensorSpec{DTypeFromScalarType(t.scalar_type()).value(), t.sizes().vec(),
                      t.strides().vec(), t.element_size()};
  };
  Node node{call.op, Json::array({Json{{"in", 0}}}), call.kwargs, {}};
  if (node.kwargs.is_null()) node.kwargs = Json::object();
  node.args.insert(node.args.end(), call.args.begin(), call.args.end());
  const size_t outputs = call.op.starts_with("aten::native") ? 3 : 2;
  node.outputs.assign(outputs, spec(input));  // Run does not compare
  signature.inputs = {spec(input)};
  signature.nodes = {node};
  signature.outputs = {{0, 1}};
  const auto program = RegionProgram::Create(signature);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  if (!program.ok()) return {};
  return (fp64 ? (*program)->RunFp64({input}) : (*program)->Run({input}))[0];
}

TEST(Means, OracleFollowsTheDefinition) {
  for (const MeanCall& call : kCalls) {
    SCOPED_TRACE(call.op);
    const at::Tensor plain = at::randn(call.sizes);
    const std::vector<double> first = {kInfinite, -kInfinite, std::nan(""), kInfinite, kInfinite};
    const std::vector<double> last = {0, 0, 0, kInfinite, -kInfinite};  // 0: no second one
    bool aten_loses_one = false;
    for (size_t kind = 0; kind < first.size(); ++kind) {
      for (int64_t place = 0; place < plain.numel(); ++place) {
        at::Tensor input = plain.clone();
        input.view(-1)[place] = first[kind];
        if (last[kind] != 0) input.view(-1)[plain.numel() - 1] = last[kind];
        at::Tensor rows = input.to(at::kDouble);
        if (!call.grouped.empty()) rows = rows.view(call.grouped);
        const at::Tensor defined = rows.mean(call.over).flatten();
        const at::Tensor mean = MeansOf(call, input, true).flatten();
        ASSERT_TRUE(at::allclose(mean, defined, 1e-14, 1e-14, /*equal_nan=*/true))
            << kind << " at " << place << ": " << mean << defined;
        const at::Tensor aten = MeansOf(call, input, false).flatten().to(at::kDouble);
        aten_loses_one =
            aten_loses_one || (aten.isnan().logical_and(defined.isinf()).any().item<bool>());
      }
    }
    EXPECT_EQ(aten_loses_one, call.op != "aten::native_batch_norm") << "what this is for";
  }
}

TEST(Means, FiniteMeansEqualAtens) {
  for (const MeanCall& call : kCalls) {
    const at::Tensor input = at::randn(call.sizes, at::kDouble);
    EXPECT_TRUE(at::equal(MeansOf(call, input, true), MeansOf(call, input, false))) << call.op;
  }
}

}  // namespace
}  // namespace cudaforge
