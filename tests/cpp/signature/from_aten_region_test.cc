#include "signature/from_aten_region.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"

namespace cudaforge {
namespace {

using Tensors = std::vector<at::Tensor>;

TensorSpec Spec(const at::Tensor& tensor) {
  return {DTypeFromScalarType(tensor.scalar_type()).value(), tensor.sizes().vec(),
          tensor.strides().vec(), tensor.element_size()};
}

Json In(int i) { return {{"in", i}}; }
Json Ref(int node) { return {{"node", node}, {"out", 0}}; }
Json Dtype(const char* name) { return {{"dtype", name}}; }

// A one-node region over `inputs` whose outputs look like `expected`.
OpSignature OneNode(const std::string& op, Json args, Json kwargs, const Tensors& inputs,
                    const Tensors& expected) {
  OpSignature signature;
  for (const at::Tensor& input : inputs) signature.inputs.push_back(Spec(input));
  Node node;
  node.op = op;
  node.args = std::move(args);
  node.kwargs = std::move(kwargs);
  for (size_t i = 0; i < expected.size(); ++i) {
    node.outputs.push_back(Spec(expected[i]));
    signature.outputs.push_back({0, static_cast<int>(i)});
  }
  signature.nodes.push_back(std::move(node));
  return signature;
}

// Bitwise, NaN equal to NaN, with dtype and strides.
void ExpectSame(const Tensors& got, const Tensors& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].scalar_type(), expected[i].scalar_type());
    EXPECT_EQ(got[i].strides(), expected[i].strides());
    EXPECT_TRUE(at::allclose(got[i].to(at::kDouble), expected[i].to(at::kDouble), 0, 0, true))
        << "output " << i;
  }
}

struct Call {
  std::string op;
  Json args;
  Json kwargs;
  Tensors inputs;
  Tensors expected;
};

class AtenRegion : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(7); }

  void Check(const Call& call) {
    SCOPED_TRACE(call.op);
    const OpSignature given = OneNode(call.op, call.args, call.kwargs, call.inputs, call.expected);
    auto normal = NormalizeAten(given);
    ASSERT_TRUE(normal.ok()) << normal.status().ToString();
    auto parsed = OpSignature::Parse(normal->Canonical());
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString() << normal->Canonical();
    EXPECT_EQ(parsed->Key(), normal->Key());
    EXPECT_EQ(NormalizeAten(*parsed)->Canonical(), normal->Canonical());
    auto program = RegionProgram::Create(*parsed);
    ASSERT_TRUE(program.ok()) << program.status().ToString();
    ExpectSame((*program)->RunStrided(call.inputs), call.expected);
  }
};

TEST_F(AtenRegion, ReductionsAndNorms) {
  const at::Tensor x = at::randn({6, 10});
  const at::Tensor h = at::randn({6, 10}).to(at::kHalf);
  const at::Tensor w = at::randn({10});
  auto [norm, mean, rstd] = at::native_layer_norm(x, {10}, w, {}, 1e-5);
  const Call calls[] = {
      {"aten::_softmax", {In(0), -1, false}, {}, {x}, {at::_softmax(x, -1, false)}},
      {"aten::native_layer_norm",
       {In(0), {10}, In(1), nullptr, 1e-5},
       {},
       {x, w},
       {norm, mean, rstd}},
      {"aten::sum.dim_IntList",
       {In(0), Json::array({1}), true},
       {{"dtype", Dtype("float32")}},
       {h},
       {at::sum(h, at::IntArrayRef({1}), true, at::kFloat)}},
      {"aten::mean.dim", {In(0), {0, 1}}, {}, {x}, {at::mean(x, at::IntArrayRef({0, 1}))}},
      {"aten::mean", Json::array({In(0)}), {}, {x}, {at::mean(x)}},
      {"aten::argmax", {In(0), 1}, {}, {x}, {at::argmax(x, 1)}},
      {"aten::argmax", Json::array({In(0)}), {}, {x}, {at::argmax(x)}},
      {"aten::var.correction",
       {In(0), Json::array({1})},
       {{"correction", 0}},
       {x},
       {at::var(x, at::OptionalIntArrayRef({1}), at::Scalar(0), false)}},
      {"aten::cumsum", {In(0), 1}, {}, {x}, {at::cumsum(x, 1)}},
      {"aten::logsumexp", {In(0), 1}, {}, {x}, {at::logsumexp(x, 1)}},
  };
  for (const Call& call : calls) Check(call);
}

TEST_F(AtenRegion, PointwiseCopiesAndLosses) {
  const at::Tensor x = at::randn({4, 3});
  const at::Tensor y = at::randn({4, 3});
  const at::Tensor i32 = at::arange(12, at::kInt).reshape({4, 3});
  const at::Tensor target = at::arange(4, at::kLong).remainder(3);
  const at::Tensor images = at::randn({2, 3, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast);
  auto [loss, weight] = at::nll_loss_forward(x, target, {}, 1, -100);
  auto [pooled, where] = at::max_pool2d_with_indices(images, {2, 2});
  const Call calls[] = {
      {"aten::add.Tensor", {In(0), In(1)}, {{"alpha", 2}}, {x, y}, {at::add(x, y, 2)}},
      {"aten::mul.Tensor", {In(0), 0.5}, {}, {i32}, {at::mul(i32, 0.5)}},
      {"aten::mul.Tensor", {In(0), 3}, {}, {x}, {at::mul(x, 3)}},
      {"aten::where.self", {In(0), In(1), In(2)}, {}, {x > 0, x, y}, {at::where(x > 0, x, y)}},
      {"aten::masked_fill.Scalar",
       {In(0), In(1), {{"float", "-inf"}}},
       {},
       {x, x > 0},
       {x.masked_fill(x > 0, -std::numeric_limits<double>::infinity())}},
      {"aten::gt.Scalar", {In(0), 3}, {}, {i32}, {i32 > 3}},
      {"aten::clamp", {In(0), nullptr, 0.25}, {}, {x}, {at::clamp(x, std::nullopt, 0.25)}},
      {"aten::gelu",
       Json::array({In(0)}),
       {{"approximate", {{"str", "tanh"}}}},
       {x},
       {at::gelu(x, "tanh")}},
      {"aten::_to_copy",
       Json::array({In(0)}),
       {{"dtype", Dtype("bfloat16")}},
       {x},
       {x.to(at::kBFloat16)}},
      {"aten::nll_loss_forward", {In(0), In(1), nullptr, 1, -100}, {}, {x, target}, {loss, weight}},
      {"aten::max_pool2d_with_indices", {In(0), {2, 2}}, {}, {images}, {pooled, where}},
      {"aten::cat", {{In(0), In(1)}, 1}, {}, {x, y}, {at::cat({x, y}, 1)}},
      {"aten::_unsafe_index.Tensor",
       {In(0), {nullptr, In(1)}},
       {},
       {x, target},
       {at::index(x, {std::nullopt, target})}},
      {"aten::full_like",
       {In(0), 2},
       {{"dtype", Dtype("int64")}, {"device", {{"device", "target"}}}},
       {x},
       {at::full_like(x, 2, at::kLong)}},
      {"aten::split_with_sizes_copy",
       {In(0), {1, 3}},
       {},
       {x},
       {x.narrow(0, 0, 1).clone(), x.narrow(0, 1, 3).clone()}},
  };
  for (const Call& call : calls) Check(call);
}

TEST_F(AtenRegion, AwkwardShapes) {
  const at::Tensor empty = at::empty({0, 5});
  const at::Tensor scalar = at::scalar_tensor(1.5);
  const at::Tensor transposed = at::randn({5, 4}).t();
  const at::Tensor expanded = at::randn({4, 1}).expand({4, 6});
  const at::Tensor flags = at::randn({3, 3}) > 0;
  const at::Tensor permuted_out = at::exp(transposed);
  ASSERT_FALSE(permuted_out.is_contiguous());
  const Call calls[] = {
      {"aten::sum.dim_IntList", {In(0), Json::array({0})}, {}, {empty}, {at::sum(empty, {0})}},
      {"aten::_softmax", {In(0), 1, false}, {}, {empty}, {at::_softmax(empty, 1, false)}},
      {"aten::exp", Json::array({In(0)}), {}, {scalar}, {at::exp(scalar)}},
      {"aten::exp", Json::array({In(0)}), {}, {transposed}, {permuted_out}},
      {"aten::sum.dim_IntList", {In(0), nullptr}, {}, {expanded}, {at::sum(expanded)}},
      {"aten::any.dim", {In(0), 1}, {}, {flags}, {at::any(flags, 1)}},
      {"aten::sum", Json::array({In(0)}), {}, {flags}, {at::sum(flags)}},
  };
  for (const Call& call : calls) Check(call);
}

TEST_F(AtenRegion, EqualCallsHaveEqualSignatures) {
  const at::Tensor x = at::randn({4, 3});
  auto canonical = [&](Json args, Json kwargs) {
    return NormalizeAten(OneNode("aten::add.Tensor", args, kwargs, {x, x}, {x}))->Canonical();
  };
  EXPECT_EQ(canonical({In(0), In(1)}, Json::object()), canonical({In(0), In(1)}, {{"alpha", 1}}));
  EXPECT_EQ(canonical({In(0)}, {{"other", In(1)}}), canonical({In(0), In(1)}, Json::object()));
  EXPECT_NE(canonical({In(0), In(1)}, {{"alpha", 2}}), canonical({In(0), In(1)}, {{"alpha", 1}}));
  auto pool = [&](Json kernel) {
    const at::Tensor image = at::randn({1, 1, 4, 4});
    return NormalizeAten(OneNode("aten::avg_pool2d", {In(0), kernel}, Json::object(), {image},
                                 {at::avg_pool2d(image, 2)}))
        ->Canonical();
  };
  EXPECT_EQ(pool(2), pool({2, 2}));
  // Integer and floating arguments differ: the result's dtype may differ.
  EXPECT_NE(canonical({In(0), 1}, Json::object()), canonical({In(0), 1.0}, Json::object()));
}

TEST_F(AtenRegion, ChainsAndIntermediates) {
  const at::Tensor x = at::randn({3, 8});
  OpSignature signature;
  signature.inputs = {Spec(x)};
  signature.nodes = {{"aten::mul.Tensor", {In(0), 2.0}, Json::object(), {Spec(x)}},
                     {"aten::exp", Json::array({Ref(0)}), Json::object(), {Spec(x)}},
                     {"aten::add.Tensor", {Ref(1), Ref(0)}, Json::object(), {Spec(x)}}};
  signature.outputs = {{2, 0}, {0, 0}};
  auto program = RegionProgram::Create(signature);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  ExpectSame((*program)->Run({x}), {at::exp(x * 2) + x * 2, x * 2});

  signature.nodes[0].args[0] = Ref(1);
  EXPECT_EQ(RegionProgram::Create(signature).status().code(), StatusCode::kInvalidArgument);
  signature.nodes[0].args[0] = In(1);
  EXPECT_EQ(RegionProgram::Create(signature).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(AtenRegion, OracleComputesInDouble) {
  const at::Tensor x = (at::randn({4, 64}) * 3).to(at::kBFloat16);
  struct Case {
    const char* op;
    Json args;
    Json kwargs;
    at::Tensor ours;
    at::Tensor oracle;
  };
  const at::Tensor d = x.to(at::kDouble);
  const Case cases[] = {
      {"aten::_softmax", {In(0), 1, false}, {}, at::_softmax(x, 1, false), at::softmax(d, 1)},
      {"aten::_to_copy", Json::array({In(0)}), {{"dtype", Dtype("float16")}}, x.to(at::kHalf), d},
      {"aten::sum.dim_IntList",
       {In(0), Json::array({1})},
       {{"dtype", Dtype("float32")}},
       at::sum(x, at::IntArrayRef({1}), false, at::kFloat),
       at::sum(d, 1)},
      {"aten::_to_copy",
       Json::array({In(0)}),
       {{"dtype", Dtype("int32")}},
       x.to(at::kInt),
       x.to(at::kInt)},
  };
  for (const Case& c : cases) {
    auto program = RegionProgram::Create(OneNode(c.op, c.args, c.kwargs, {x}, {c.ours}));
    ASSERT_TRUE(program.ok()) << program.status().ToString();
    const at::Tensor result = (*program)->RunFp64({x})[0];
    EXPECT_EQ(result.scalar_type(), c.oracle.scalar_type());
    EXPECT_TRUE(at::allclose(result, c.oracle, 1e-14, 1e-14)) << c.op;
  }
  auto factory = OneNode("aten::full", {{2}, 0.1}, Json::object(), {}, {at::full({2}, 0.1)});
  EXPECT_EQ((*RegionProgram::Create(factory))->RunFp64({})[0][0].item<double>(), 0.1);
}

TEST_F(AtenRegion, HalfToFloatSoftmaxHasAnOracle) {
  const at::Tensor x = at::randn({2, 4}).to(at::kHalf);
  auto program = RegionProgram::Create(
      OneNode("aten::_softmax", {In(0), 1, true}, Json::object(), {x}, {x.to(at::kFloat)}));
  ASSERT_TRUE(program.ok());
  EXPECT_EQ((*program)->RunFp64({x})[0].scalar_type(), at::kDouble);
}

TEST_F(AtenRegion, OutputsHaveTheSignaturesStridesAndOwnStorage) {
  const at::Tensor x = at::randn({4, 6});
  const at::Tensor column_major = at::empty({6, 4}).t();
  auto exp = RegionProgram::Create(
      OneNode("aten::exp", Json::array({In(0)}), Json::object(), {x}, {column_major}));
  const at::Tensor result = (*exp)->RunStrided({x})[0];
  EXPECT_EQ(result.strides(), column_major.strides());
  EXPECT_TRUE(at::equal(result, at::exp(x)));

  // This op returns its input if there is nothing to convert, which its schema does not say.
  const at::Tensor y = at::randn({4, 6});
  auto same =
      RegionProgram::Create(OneNode("aten::type_as", {In(0), In(0)}, Json::object(), {y}, {y}));
  ASSERT_TRUE(same.ok()) << same.status().ToString();
  EXPECT_TRUE((*same)->Run({y})[0].is_alias_of(y));
  EXPECT_FALSE((*same)->RunStrided({y})[0].is_alias_of(y));

  // A wrong shape in a signature is an error, not a wrong answer.
  auto wrong = RegionProgram::Create(
      OneNode("aten::exp", Json::array({In(0)}), Json::object(), {x}, {at::empty({4, 5})}));
  EXPECT_THROW((*wrong)->RunStrided({x}), c10::Error);
  EXPECT_THROW((*wrong)->Run({}), c10::Error);
}

TEST_F(AtenRegion, RefusesImpureCalls) {
  const at::Tensor x = at::randn({4, 6});
  const std::pair<const char*, Json> calls[] = {
      {"aten::add_.Tensor", {In(0), In(0)}},      {"aten::view", {In(0), {24}}},
      {"aten::bernoulli", Json::array({In(0)})},  {"aten::nonzero", Json::array({In(0)})},
      {"aten::dropout", {In(0), 0.5, true}},      {"aten::no_such_op", Json::array({In(0)})},
      {"aten::empty_like", Json::array({In(0)})}, {"aten::exp.no_such", Json::array({In(0)})},
      {"prims::exp", Json::array({In(0)})},       {"mylib::exp", Json::array({In(0)})},
      {"aten::item", Json::array({In(0)})},
  };
  for (const auto& [op, args] : calls) {
    const OpSignature signature = OneNode(op, args, Json::object(), {x}, {x});
    EXPECT_EQ(NormalizeAten(signature).status().code(), StatusCode::kUnsupported) << op;
    EXPECT_EQ(RegionProgram::Create(signature).status().code(), StatusCode::kUnsupported) << op;
  }
  const at::Tensor v = at::randn({6});
  for (bool training : {false, true}) {
    const auto norm = OneNode("aten::native_batch_norm",
                              {In(0), nullptr, nullptr, In(1), In(2), training, 0.1, 1e-5},
                              Json::object(), {x, v, v}, {x, v, v});
    EXPECT_EQ(NormalizeAten(norm).ok(), !training);
  }
}

TEST_F(AtenRegion, AttentionIsPureWithoutDropout) {
  const at::Tensor q = at::randn({2, 3, 5, 8});
  const at::Tensor k = at::randn({2, 3, 7, 8});
  const at::Tensor v = at::randn({2, 3, 7, 8});
  const char* op = "aten::scaled_dot_product_attention";
  const auto call = [&](double dropout) {
    return OneNode(op, {In(0), In(1), In(2), nullptr, dropout, true}, Json::object(), {q, k, v},
                   {at::scaled_dot_product_attention(q, k, v, {}, 0.0, true)});
  };
  const auto normal = NormalizeAten(call(0.0));
  ASSERT_TRUE(normal.ok()) << normal.status().ToString();
  auto program = RegionProgram::Create(*normal);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  const at::Tensor exact = at::scaled_dot_product_attention(q.to(at::kDouble), k.to(at::kDouble),
                                                            v.to(at::kDouble), {}, 0.0, true);
  EXPECT_TRUE(at::allclose((*program)->Run({q, k, v})[0].to(at::kDouble), exact, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose((*program)->RunFp64({q, k, v})[0], exact, 1e-13, 1e-13));
  EXPECT_EQ(NormalizeAten(call(0.1)).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(RegionProgram::Create(call(0.1)).status().code(), StatusCode::kUnsupported);
}

TEST_F(AtenRegion, RefusesArgumentsThatDoNotFit) {
  const at::Tensor x = at::randn({4, 6});
  auto status = [&](const char* op, Json args, Json kwargs) {
    return NormalizeAten(OneNode(op, args, kwargs, {x}, {x})).status();
  };
  const Json none = Json::object();
  EXPECT_EQ(status("aten::_softmax", {In(0), 1}, none).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status("aten::_softmax", {In(0), 1.5, false}, none).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(status("aten::exp", {In(0), In(0)}, none).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status("aten::exp", Json::array({nullptr}), none).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status("aten::exp", Json::array({In(0)}), {{"self", In(0)}}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(status("aten::exp", Json::array({{{"in", -1}}}), none).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(status("aten::exp", Json::array({{{"in", 1.5}}}), none).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(status("aten::_to_copy", Json::array({In(0)}), {{"dtype", Dtype("complex64")}}).code(),
            StatusCode::kUnsupported);
  EXPECT_EQ(status("aten::_to_copy", Json::array({In(0)}), {{"device", {{"str", "cpu"}}}}).code(),
            StatusCode::kUnsupported);
}

TEST_F(AtenRegion, RunsInSeveralThreadsAndUnderGrad) {
  const at::Tensor x = at::randn({16, 32});
  const at::Tensor expected = at::_softmax(x, 1, false);
  auto program = RegionProgram::Create(
      OneNode("aten::_softmax", {In(0), 1, false}, Json::object(), {x}, {expected}));
  const at::Tensor leaf = x.clone().requires_grad_();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const at::Tensor result = (*program)->RunStrided({leaf})[0];
        if (result.requires_grad() || !at::equal(result, expected)) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace cudaforge
