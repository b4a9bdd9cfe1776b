#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "signature/aten_numerics.h"
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

TEST(ReadAtenCall, IsTheRegionOfThatOneCall) {
  const at::Tensor x = at::randn({8, 128});
  const Result<AtenCall> call = Read(Op("aten::_softmax"), {x, int64_t{-1}, false});
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  const OpSignature& signature = call->signature;
  EXPECT_EQ(signature.Canonical(),
            OpSignature::Parse(R"({"aliases":[],"device":"cpu","format":1,"inputs":[{"alignment":16,
              "dtype":"float32","sizes":[8,128],"strides":[128,1]}],"nodes":[{"args":[{"in":0},-1,
              false],"kwargs":{},"op":"aten::_softmax","outputs":[{"dtype":"float32","sizes":[8,128],
              "strides":[128,1]}]}],"numerics":{"deterministic":false},
              "outputs":[{"node":0,"out":0}]})")
                .value()
                .Canonical());
  ASSERT_EQ(call->inputs.size(), 1u);
  EXPECT_TRUE(call->inputs[0].In({IValue(x)}).is_same(x));
}

TEST(ReadAtenCall, ATensorGivenTwiceIsOneInputAndAViewSharesItsStorage) {
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

TEST(ReadAtenCall, ListsAndAbsentResultsAreRead) {
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
}

TEST(ReadAtenCall, WhatNoRegionHoldsIsRefused) {
  const auto code = [](const Result<AtenCall>& call) { return call.status().code(); };
  const at::Tensor complex = at::randn({3}, at::kComplexFloat);
  EXPECT_EQ(code(Read(Op("aten::neg"), {complex})), StatusCode::kUnsupported);
  EXPECT_EQ(code(Read(Op("aten::neg"), {at::ones({3}, at::kShort)})), StatusCode::kUnsupported);
  EXPECT_EQ(code(Read(Op("aten::t"), {at::randn({3, 3})})), StatusCode::kUnsupported);
}

TEST(KnownAlignment, IsSixteenAtMost) {
  const auto at = [](uintptr_t address) {
    return KnownAlignment(reinterpret_cast<const void*>(address));
  };
  EXPECT_EQ(at(0), 16);
  EXPECT_EQ(at(4096), 16);
  EXPECT_EQ(at(4096 + 8), 8);
  EXPECT_EQ(at(4096 + 4), 4);
  EXPECT_EQ(at(4096 + 1), 1);
}

// Every setting, those that contradict each other too: a word of its own, the same for the JSON.
TEST(Numerics, EverySettingHasItsWord) {
  using Backend = at::Float32Backend;
  using Op = at::Float32Op;
  using Precision = at::Float32Precision;
  at::Context& context = at::globalContext();
  const auto of_backend = [&context](Backend backend, Op op, Precision precision) {
    return [&context, backend, op, precision] {
      const Precision before = context.float32Precision(backend, op);
      context.setFloat32Precision(backend, op, precision);
      return std::function<void()>(
          [&context, backend, op, before] { context.setFloat32Precision(backend, op, before); });
    };
  };
  std::vector<std::function<std::function<void()>()>> settings = {
      [] { return std::function<void()>([] {}); },
      [&] {
        const bool before = context.allowTF32CuDNN(Op::CONV);
        context.setAllowTF32CuDNN(!before);
        return std::function<void()>([&context, before] { context.setAllowTF32CuDNN(before); });
      },
      [&] {
        context.setAllowFP16AccumulationCuBLAS(true);
        return std::function<void()>([&] { context.setAllowFP16AccumulationCuBLAS(false); });
      },
      of_backend(Backend::CUDA, Op::MATMUL, Precision::TF32),
      of_backend(Backend::MKLDNN, Op::MATMUL, Precision::BF16),
      of_backend(Backend::MKLDNN, Op::CONV, Precision::BF16),
  };
  const uint64_t other = NumericsWord(false);
  std::map<uint64_t, Json> seen;
  for (const auto& set : settings) {
    const std::function<void()> restore = set();
    const uint64_t word = NumericsWord(true);
    const Json json = NumericsInForce({"aten::mm"});
    EXPECT_EQ(MatrixNumericsWord(json), word) << json;
    EXPECT_TRUE(seen.emplace(word, json).second) << json;
    EXPECT_EQ(NumericsWord(false), other);
    restore();
  }
  std::set<std::string> texts;
  for (const auto& [word, json] : seen) texts.insert(json.dump());
  EXPECT_EQ(texts.size(), settings.size());
  EXPECT_EQ(NumericsInForce({"aten::sum"}).size(), 1u);
  EXPECT_EQ(MatrixNumericsWord(NumericsInForce({"aten::sum"})), std::nullopt);
}

TEST(Numerics, TheMatmulPrecisionIsPyTorchs) {
  at::Context& context = at::globalContext();
  const auto before = context.float32MatmulPrecision();
  for (const auto& [precision, name] :
       std::vector<std::pair<at::Float32MatmulPrecision, std::string>>{
           {at::Float32MatmulPrecision::HIGH, "high"},
           {at::Float32MatmulPrecision::MEDIUM, "medium"},
           {at::Float32MatmulPrecision::HIGHEST, "highest"}}) {
    context.setFloat32MatmulPrecision(name);
    EXPECT_EQ(context.float32MatmulPrecision(), precision);
    const Json json = NumericsInForce({"aten::mm"});
    EXPECT_EQ(json["float32_matmul_precision"], name);
    EXPECT_EQ(json.size(), 5u) << json;
    EXPECT_EQ(MatrixNumericsWord(json), NumericsWord(true));
  }
  EXPECT_EQ(before, at::Float32MatmulPrecision::HIGHEST);
}

}  // namespace
}  // namespace cudaforge
