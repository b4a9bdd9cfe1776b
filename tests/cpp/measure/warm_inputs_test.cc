#include "measure/warm_inputs.h"

#include <gtest/gtest.h>

namespace cudaforge {
namespace {

TensorSpec DenseOf(std::vector<int64_t> sizes, DType dtype = DType::kFloat32) {
  TensorSpec spec;
  spec.dtype = dtype;
  spec.strides = ContiguousStrides(sizes);
  spec.sizes = std::move(sizes);
  return spec;
}

Json InputAt(int index) { return {{"in", index}}; }
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
  const TensorSpec x = DenseOf({64, 256});
  const OpSignature add = RegionOf({x, x}, {{"aten::add.Tensor", {InputAt(0), InputAt(1)}, x}});
  EXPECT_EQ(WarmInputs(add, SmallGpu()), (Indices{0, 1}));
  const OpSignature bias =
      RegionOf({DenseOf({256}), x}, {{"aten::add.Tensor", {InputAt(1), InputAt(0)}, x}});
  EXPECT_EQ(WarmInputs(bias, SmallGpu()), (Indices{1}));
}

TEST(WarmInputs, NoneOfALargeRegion) {
  // 512 KiB is half of the cache.
  const auto add = [](int64_t rows) {
    const TensorSpec x = DenseOf({rows, 256});
    return RegionOf({x}, {{"aten::relu", {InputAt(0)}, x}});
  };
  EXPECT_EQ(WarmInputs(add(256), SmallGpu()), (Indices{0}));
  EXPECT_EQ(WarmInputs(add(257), SmallGpu()), Indices{});
  DeviceArch unknown;
  EXPECT_EQ(WarmInputs(add(256), unknown), Indices{});
}

TEST(WarmInputs, WeightsStayCold) {
  const TensorSpec x = DenseOf({8, 64}), weight = DenseOf({16, 64}), y = DenseOf({8, 16});
  const OpSignature linear = RegionOf({x, weight}, {{"aten::t", {InputAt(1)}, DenseOf({64, 16})},
                                                    {"aten::mm", {InputAt(0), NodeAt(0)}, y}});
  EXPECT_EQ(WarmInputs(linear, SmallGpu()), (Indices{0})) << "through a view";
  const TensorSpec a = DenseOf({4, 8, 16}), b = DenseOf({4, 16, 8}), c = DenseOf({4, 8, 8});
  const OpSignature batched = RegionOf({a, b}, {{"aten::bmm", {InputAt(0), InputAt(1)}, c}});
  EXPECT_EQ(WarmInputs(batched, SmallGpu()), (Indices{0, 1})) << "as in attention";
  const OpSignature table =
      RegionOf({DenseOf({100, 8}), DenseOf({4, 4}, DType::kInt64)},
               {{"aten::embedding", {InputAt(0), InputAt(1)}, DenseOf({4, 4, 8})}});
  EXPECT_EQ(WarmInputs(table, SmallGpu()), (Indices{1}));
  const TensorSpec image = DenseOf({1, 4, 8, 8}), filter = DenseOf({4, 4, 1, 1});
  const OpSignature convolution =
      RegionOf({image, filter},
               {{"aten::convolution",
                 {InputAt(0), InputAt(1), nullptr, {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 1},
                 image}});
  EXPECT_EQ(WarmInputs(convolution, SmallGpu()), (Indices{0}));
}

}  // namespace
}  // namespace cudaforge
