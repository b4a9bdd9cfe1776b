#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "signature/from_aten_call.h"

namespace cudaforge {
namespace {

using c10::IValue;

c10::OperatorHandle Op(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

// Calls the operator and reads the call.
Result<AtenCall> Read(const c10::OperatorHandle& op, const std::vector<IValue>& args) {
  torch::jit::Stack stack(args.begin(), args.end());
  op.callBoxed(stack);
  return ReadAtenCall(op, args, stack);
}

TEST(ReadAtenCall, MakesARegionOfOneCall) {
  const at::Tensor x = at::randn({8, 128});
  const Result<AtenCall> call = Read(Op("aten::_softmax"), {x, int64_t{-1}, false});
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  const OpSignature& signature = call->signature;
  EXPECT_EQ(signature.Canonical(),
            OpSignature::Parse(R"({"aliases":[],"device":"cpu","format":1,"inputs":[{"alignment":4,
              "dtype":"float32","sizes":[8,128],"strides":[128,1]}],"nodes":[{"args":[{"in":0},-1,
              false],"kwargs":{},"op":"aten::_softmax","outputs":[{"dtype":"float32","sizes":[8,128],
              "strides":[128,1]}]}],"numerics":{"deterministic":false},
              "outputs":[{"node":0,"out":0}]})")
                .value()
                .Canonical());
  ASSERT_EQ(call->inputs.size(), 1u);
  EXPECT_TRUE(call->inputs[0].In({IValue(x)}).is_same(x));
}

TEST(ReadAtenCall, RepeatedTensorIsOneInputAndViewsShareStorage) {
  const at::Tensor x = at::randn({4, 4});
  const Result<AtenCall> square = Read(Op("aten::mm"), {x, x});
  ASSERT_TRUE(square.ok());
  EXPECT_EQ(square->signature.inputs.size(), 1u);
  EXPECT_EQ(square->signature.nodes[0].args, Json::parse(R"([{"in":0},{"in":0}])"));
  EXPECT_TRUE(square->signature.numerics.contains("float32_matmul_precision"));
  const Result<AtenCall> gram = Read(Op("aten::mm"), {x, x.t()});
  ASSERT_TRUE(gram.ok());
  EXPECT_EQ(gram->signature.inputs[1].strides, (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(gram->signature.aliases, (std::vector<std::vector<int>>{{0, 1}}));
}

TEST(ReadAtenCall, ListsOfArgumentsAndAbsentResultsAreRead) {
  const at::Tensor x = at::randn({2, 3}), y = at::randn({2, 1});
  const Result<AtenCall> cat = Read(Op("aten::cat"), {c10::List<at::Tensor>({x, y}), int64_t{1}});
  ASSERT_TRUE(cat.ok()) << cat.status().ToString();
  EXPECT_EQ(cat->signature.inputs.size(), 2u);
  EXPECT_TRUE(cat->inputs[1].In({IValue(c10::List<at::Tensor>({x, y}))}).is_same(y));

  const at::Tensor rows = at::randn({6, 16});
  const auto [out, mean, rstd] = at::native_layer_norm(rows, {16}, {}, {}, 1e-5);
  const Result<AtenCall> backward = Read(Op("aten::native_layer_norm_backward"),
                                         {out, rows, c10::List<int64_t>({16}), mean, rstd, IValue(),
                                          IValue(), c10::List<bool>({true, false, false})});
  ASSERT_TRUE(backward.ok()) << backward.status().ToString();
  EXPECT_EQ(backward->signature.outputs.size(), 1u);
  EXPECT_TRUE(backward->signature.nodes[0].outputs[1].absent);
  ASSERT_EQ(backward->others.size(), 3u);
  EXPECT_TRUE(backward->others[0].isNone());
  EXPECT_FALSE(backward->others[1].toTensor().defined());
}

// A call of one of PyTorch's attention kernels, which only CUDA has, and its results.
class ReadAttention : public ::testing::Test {
 protected:
  Result<AtenCall> Efficient(IValue bias, bool for_backward, double dropout, bool causal,
                             IValue scale = {}) {
    return ReadAtenCall(Op("aten::_scaled_dot_product_efficient_attention"),
                        {q_, k_, v_, std::move(bias), for_backward, dropout, causal, scale},
                        {out_, at::empty({2, 4, 0}), seed_, seed_});
  }
  Result<AtenCall> Cudnn(bool debug) {
    return ReadAtenCall(Op("aten::_scaled_dot_product_cudnn_attention"),
                        {q_, k_, v_, IValue(), false, 0.0, true, debug, 0.5},
                        {out_, at::Tensor(), at::Tensor(), at::Tensor(), int64_t{16}, int64_t{16},
                         seed_, seed_, at::Tensor()});
  }
  Result<AtenCall> Named(IValue mask, bool causal, IValue scale) {
    return ReadAtenCall(Op("aten::scaled_dot_product_attention"),
                        {q_, k_, v_, std::move(mask), 0.0, causal, std::move(scale), false},
                        {out_});
  }

  at::Tensor q_ = at::randn({2, 4, 16, 8}), k_ = at::randn({2, 4, 16, 8}),
             v_ = at::randn({2, 4, 16, 8}), out_ = at::randn({2, 4, 16, 8}), seed_ = at::zeros({});
};

TEST_F(ReadAttention, MapsToTheGeneralCall) {
  const at::Tensor mask = at::randn({2, 4, 16, 16});
  const auto efficient = Efficient(mask, false, 0.0, false);
  ASSERT_TRUE(efficient.ok()) << efficient.status().ToString();
  EXPECT_EQ(efficient->signature.Canonical(), Named(mask, false, {})->signature.Canonical());
  EXPECT_EQ(efficient->inputs[3].In({IValue(), IValue(), IValue(), IValue(mask)}).data_ptr(),
            mask.data_ptr());
  const auto cudnn = Cudnn(false);
  ASSERT_TRUE(cudnn.ok()) << cudnn.status().ToString();
  EXPECT_EQ(cudnn->signature.Canonical(), Named({}, true, 0.5)->signature.Canonical());
  EXPECT_EQ(cudnn->signature.Canonical(),
            Efficient({}, false, 0.0, true, 0.5)->signature.Canonical());
}

TEST_F(ReadAttention, KeepsTheOtherResults) {
  const auto efficient = Efficient({}, false, 0.0, true);
  ASSERT_EQ(efficient->others.size(), 4u);
  EXPECT_TRUE(efficient->others[0].isNone());
  EXPECT_EQ(efficient->others[1].toTensor().sizes(), (std::vector<int64_t>{2, 4, 0}));
  const auto cudnn = Cudnn(false);
  ASSERT_EQ(cudnn->others.size(), 9u);
  EXPECT_FALSE(cudnn->others[1].toTensor().defined());
  EXPECT_EQ(cudnn->others[4], IValue(int64_t{16}));
}

TEST_F(ReadAttention, RefusesBackwardAndDropout) {
  const auto code = [](const Result<AtenCall>& call) { return call.status().code(); };
  EXPECT_EQ(code(Efficient({}, true, 0.0, true)), StatusCode::kUnsupported);
  EXPECT_EQ(code(Efficient({}, false, 0.1, true)), StatusCode::kUnsupported);
  EXPECT_EQ(code(Cudnn(true)), StatusCode::kUnsupported);
  k_ = at::randn({2, 4, 24, 8});
  v_ = at::randn({2, 4, 24, 8});
  EXPECT_TRUE(Efficient({}, false, 0.0, false).ok());
  EXPECT_EQ(code(Efficient({}, false, 0.0, true)), StatusCode::kUnsupported);
}

// The CPU's kernel has no argument about a backward, so the region has all results.
TEST_F(ReadAttention, CpuKernelHasBothResults) {
  const c10::OperatorHandle op = Op("aten::_scaled_dot_product_flash_attention_for_cpu");
  const Result<AtenCall> call = Read(op, {q_, k_, v_, 0.0, true, IValue(), IValue()});
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  EXPECT_EQ(call->signature.outputs.size(), 2u);
  EXPECT_FALSE(ReadAtenCall(op, {q_, k_, v_, 0.5, true, IValue(), IValue()}, {out_, out_}).ok());
}

TEST(ReadAtenCall, UnsupportedCallsAreRefused) {
  const auto code = [](const Result<AtenCall>& call) { return call.status().code(); };
  const at::Tensor complex = at::randn({3}, at::kComplexFloat);
  EXPECT_EQ(code(Read(Op("aten::neg"), {complex})), StatusCode::kUnsupported);
  EXPECT_EQ(code(Read(Op("aten::neg"), {at::ones({3}, at::kShort)})), StatusCode::kUnsupported);
  EXPECT_EQ(code(Read(Op("aten::t"), {at::randn({3, 3})})), StatusCode::kUnsupported);
  EXPECT_EQ(code(Read(Op("aten::neg"), {at::ones({0, 3})})), StatusCode::kUnsupported);
  EXPECT_EQ(code(Read(Op("aten::_foreach_neg"), {c10::List<at::Tensor>({at::randn({4})})})),
            StatusCode::kUnsupported);
}

TEST(KnownAlignment, IsThatOfTheFirstElementLimitedOnACpu) {
  const at::Tensor bytes = at::zeros({64}, at::kByte);  // PyTorch aligns it to 64
  const auto from = [&](int64_t offset) {
    return KnownAlignment(at::from_blob(bytes.data_ptr<uint8_t>() + offset, {4}, at::kDouble));
  };
  EXPECT_EQ(from(0), 8);
  EXPECT_EQ(from(24), 8);
  EXPECT_EQ(from(20), 4);
  EXPECT_EQ(from(17), 1);
  EXPECT_EQ(KnownAlignment(bytes.slice(0, 32)), 1);
  EXPECT_EQ(KnownAlignment(at::zeros({0})), 4) << "no elements";
}

TEST(GpuKnownAlignment, IsThatOfTheFirstElement) {
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "needs a GPU";
  const at::Tensor x = at::zeros({64}, at::TensorOptions(at::kDouble).device(at::kCUDA));
  EXPECT_EQ(KnownAlignment(x), 16);
  EXPECT_EQ(KnownAlignment(x.slice(0, 3)), 8) << "offsets are in elements";
  EXPECT_EQ(KnownAlignment(x.slice(0, 64)), 16) << "no elements";
}

}  // namespace
}  // namespace cudaforge
