// Derived inputs against ATen's own forward calls in float64.
#include <gtest/gtest.h>

#include "tests/cpp/verify/drawn.h"
#include "verify/aten_derive.h"

namespace cudaforge {
namespace {

struct Derived {
  OpSignature signature;
  std::vector<at::Tensor> inputs;
};

// Inputs of one set, derived.
Derived Derive(OpSignature signature) {
  Derived derived = {std::move(signature), {}};
  const auto sets = DrawNamed(derived.signature, "normal");
  EXPECT_TRUE(sets.at(0).set.derive);
  for (size_t i = 0; i < derived.signature.inputs.size(); ++i) {
    const TensorSpec& spec = derived.signature.inputs[i];
    std::string bytes = sets[0].bytes[i];
    const at::ScalarType type = spec.dtype == DType::kInt64 ? at::kLong : at::kFloat;
    derived.inputs.push_back(at::empty_strided(spec.sizes, spec.strides, at::TensorOptions(type)));
    std::memcpy(derived.inputs[i].data_ptr(), bytes.data(), bytes.size());
  }
  const Status status = DeriveInputs(derived.signature, derived.inputs);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return derived;
}

TensorSpec F(std::vector<int64_t> sizes, std::vector<int64_t> strides = {}) {
  return Spec(DType::kFloat32, std::move(sizes), std::move(strides));
}

void ExpectClose(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_TRUE(
      at::allclose(got.to(at::kDouble), want.to(at::kDouble).reshape(got.sizes()), 1e-5, 1e-6))
      << got.sizes();
}

TEST(DeriveInPlace, MomentsOfRowsGroupsAndChannels) {
  const Json mask = {true, true, true};
  // Several blocks: 5,000,000 elements. Columns are adjacent in the second.
  for (const TensorSpec& x : {F({2500, 2, 1000}), F({6, 4, 500}, {1, 3000, 6})}) {
    const TensorSpec rows = F({x.sizes[0], 1, 1}), weight = F({x.sizes[1], x.sizes[2]});
    const Derived layer = Derive(
        Call("aten::native_layer_norm_backward",
             {Arg(0), Arg(1), {x.sizes[1], x.sizes[2]}, Arg(2), Arg(3), Arg(4), Arg(4), mask},
             {x, x, rows, rows, weight}, {x, weight, weight}));
    const at::Tensor wide = layer.inputs[1].to(at::kDouble);
    ExpectClose(layer.inputs[2], wide.mean(at::IntArrayRef({1, 2})));
    ExpectClose(layer.inputs[3], (wide.var(at::IntArrayRef({1, 2}), false) + 1e-5).rsqrt());
  }
  const TensorSpec x = F({3, 8, 50}), stats = F({3, 4}), channel = F({8});
  const Derived group = Derive(Call("aten::native_group_norm_backward",
                                    {Arg(0), Arg(1), Arg(2), Arg(3), Arg(4), 3, 8, 50, 4, mask},
                                    {x, x, stats, stats, channel}, {x, channel, channel}));
  const at::Tensor grouped = group.inputs[1].to(at::kDouble).view({3, 4, -1});
  ExpectClose(group.inputs[2], grouped.mean(-1));
  ExpectClose(group.inputs[3], (grouped.var(-1, false) + 1e-5).rsqrt());
  const Derived batch =
      Derive(Call("aten::native_batch_norm_backward",
                  {Arg(0), Arg(1), Arg(2), nullptr, nullptr, Arg(3), Arg(4), true, 1e-5, mask},
                  {x, x, channel, channel, channel}, {x, channel, channel}));
  const at::Tensor wide = batch.inputs[1].to(at::kDouble);
  ExpectClose(batch.inputs[3], wide.mean(at::IntArrayRef({0, 2})));
  ExpectClose(batch.inputs[4], (wide.var(at::IntArrayRef({0, 2}), false) + 1e-5).rsqrt());
}

TEST(DeriveInPlace, ProbabilitiesSumToOne) {
  for (const int64_t dim : {0, 1, -1}) {
    for (const TensorSpec& x : {F({30, 40, 7}), F({3, 9, 200000})}) {
      const Derived soft =
          Derive(Call("aten::_softmax_backward_data", {Arg(0), Arg(1), dim, 6}, {x, x}, {x}));
      const at::Tensor sums = soft.inputs[1].to(at::kDouble).sum(dim);
      ExpectClose(sums, at::ones_like(sums));
      EXPECT_GT(soft.inputs[1].min().item<float>(), 0);
      const Derived logs =
          Derive(Call("aten::_log_softmax_backward_data", {Arg(0), Arg(1), dim, 6}, {x, x}, {x}));
      ExpectClose(logs.inputs[1].to(at::kDouble).exp().sum(dim), at::ones_like(sums));
    }
  }
}

TEST(DeriveInPlace, IndicesAreThoseOfTheMaxima) {
  const TensorSpec x = F({6, 3, 20, 22}), y = F({6, 3, 10, 11});
  TensorSpec places = y;
  places.dtype = DType::kInt64;
  const Json two = {2, 2};
  const Derived pool =
      Derive(Call("aten::max_pool2d_with_indices_backward",
                  {Arg(0), Arg(1), two, two, {0, 0}, {1, 1}, false, Arg(2)}, {y, x, places}, {x}));
  const auto want = at::max_pool2d_with_indices(pool.inputs[1], {2, 2}, {2, 2}, {0, 0}, {1, 1});
  EXPECT_TRUE(at::equal(pool.inputs[2], std::get<1>(want)));
}

}  // namespace
}  // namespace cudaforge
