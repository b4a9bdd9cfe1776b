#include "measure/warm_inputs.h"

#include <gtest/gtest.h>

#include "tests/cpp/measure/tensors.h"

namespace cudaforge {
namespace {

Json NodeAt(int node) { return {{"node", node}, {"out", 0}}; }

// A GPU with 1 MiB of L2 cache.
DeviceArch SmallGpu() {
  DeviceArch arch;
  arch.target = "cuda:sm_90";
  arch.l2_bytes = int64_t{1} << 20;
  return arch;
}

struct Call {
  const char* op;
  Json args;
  TensorSpec output;
};

// The last node's output is the region's.
OpSignature RegionOf(std::vector<TensorSpec> inputs, std::vector<Call> calls) {
  OpSignature region;
  region.device = DeviceType::kCuda;
  region.inputs = std::move(inputs);
  for (Call& call : calls) {
    Node node;
    node.op = call.op;
    node.args = std::move(call.args);
    node.outputs = {std::move(call.output)};
    region.nodes.push_back(std::move(node));
  }
  region.outputs = {{static_cast<int>(region.nodes.size()) - 1, 0}};
  return region;
}

using Indices = std::vector<int>;

TEST(WarmInputs, ActivationsOfASmallRegion) {
  const TensorSpec x = Tensor({64, 256});
  const OpSignature add = RegionOf({x, x}, {{"aten::add.Tensor", {In(0), In(1)}, x}});
  EXPECT_EQ(WarmInputs(add, SmallGpu()), (Indices{0, 1}));
  const OpSignature bias = RegionOf({Tensor({256}), x}, {{"aten::add.Tensor", {In(1), In(0)}, x}});
  EXPECT_EQ(WarmInputs(bias, SmallGpu()), (Indices{1}));
}

TEST(WarmInputs, NoneOfALargeRegion) {
  // 512 KiB is half of the cache.
  const auto add = [](int64_t rows) {
    const TensorSpec x = Tensor({rows, 256});
    return RegionOf({x}, {{"aten::relu", {In(0)}, x}});
  };
  EXPECT_EQ(WarmInputs(add(256), SmallGpu()), (Indices{0}));
  EXPECT_EQ(WarmInputs(add(257), SmallGpu()), Indices{});
  DeviceArch unknown;
  EXPECT_EQ(WarmInputs(add(256), unknown), Indices{});
}

TEST(WarmInputs, WeightsStayCold) {
  const TensorSpec x = Tensor({8, 64}), weight = Tensor({16, 64}), y = Tensor({8, 16});
  const OpSignature linear = RegionOf(
      {x, weight}, {{"aten::t", {In(1)}, Tensor({64, 16})}, {"aten::mm", {In(0), NodeAt(0)}, y}});
  EXPECT_EQ(WarmInputs(linear, SmallGpu()), (Indices{0})) << "through a view";
  const TensorSpec a = Tensor({4, 8, 16}), b = Tensor({4, 16, 8}), c = Tensor({4, 8, 8});
  const OpSignature batched = RegionOf({a, b}, {{"aten::bmm", {In(0), In(1)}, c}});
  EXPECT_EQ(WarmInputs(batched, SmallGpu()), (Indices{0, 1})) << "as in attention";
  const OpSignature table = RegionOf({Tensor({100, 8}), Tensor({4, 4}, DType::kInt64)},
                                     {{"aten::embedding", {In(0), In(1)}, Tensor({4, 4, 8})}});
  EXPECT_EQ(WarmInputs(table, SmallGpu()), (Indices{1}));
  const TensorSpec image = Tensor({1, 4, 8, 8}), filter = Tensor({4, 4, 1, 1});
  const OpSignature convolution =
      RegionOf({image, filter}, {{"aten::convolution",
                                  {In(0), In(1), nullptr, {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 1},
                                  image}});
  EXPECT_EQ(WarmInputs(convolution, SmallGpu()), (Indices{0}));
}

}  // namespace
}  // namespace cudaforge
