#include "forge/region_text.h"

#include <gtest/gtest.h>

namespace cudaforge {
namespace {

TensorSpec Floats(std::vector<int64_t> sizes) {
  TensorSpec spec;
  spec.strides = ContiguousStrides(sizes);
  spec.sizes = std::move(sizes);
  spec.alignment = 4;
  return spec;
}

// Layer norm of a transposed input, then a comparison of two of the inputs.
OpSignature NormRegion() {
  OpSignature signature;
  TensorSpec transposed = Floats({8, 6});
  transposed.strides = {1, 8};
  signature.inputs = {transposed, Floats({6}), Floats({6})};
  signature.aliases = {{1, 2}};
  Node norm;
  norm.op = "aten::native_layer_norm";
  norm.args =
      Json::array({{{"in", 0}}, Json::array({6}), {{"in", 1}}, nullptr, {{"float", "inf"}}});
  norm.outputs = {Floats({8, 6}), Floats({8, 1}), Floats({8, 1})};
  norm.outputs[2].absent = true;
  Node cast;
  cast.op = "aten::_to_copy";
  cast.args = Json::array({{{"node", 0}, {"out", 1}}});
  cast.kwargs = {{"dtype", {{"dtype", "float16"}}}, {"mode", {{"str", "a\nb"}}}};
  cast.outputs = {Floats({8, 1})};
  cast.outputs[0].dtype = DType::kFloat16;
  signature.nodes = {norm, cast};
  signature.outputs = {{1, 0}, {0, 0}};
  signature.numerics = {{"deterministic", true}, {"float32_matmul_precision", "highest"}};
  return signature;
}

TEST(RegionText, DescribesTheWholeRegion) {
  EXPECT_EQ(DescribeRegion(NormRegion()),
            "Device: cpu\n"
            "Inputs:\n"
            "  in0: float32 [8, 6], strides [1, 8], aligned to 4 bytes, 192 bytes\n"
            "  in1: float32 [6], strides [1], contiguous, aligned to 4 bytes, 24 bytes\n"
            "  in2: float32 [6], strides [1], contiguous, aligned to 4 bytes, 24 bytes\n"
            "  These share one storage: in1, in2\n"
            "Calls:\n"
            "  t0 = aten::native_layer_norm(in0, [6], in1, none, inf)\n"
            "      t0.0: float32 [8, 6], strides [6, 1], contiguous\n"
            "      t0.1: float32 [8, 1], strides [1, 1], contiguous\n"
            "      t0.2: absent\n"
            "  t1 = aten::_to_copy(t0.1, dtype=float16, mode=\"a\\nb\")\n"
            "      t1: float16 [8, 1], strides [1, 1], contiguous\n"
            "Outputs:\n"
            "  out0 = t1: float16 [8, 1], strides [1, 1], contiguous, 16 bytes\n"
            "  out1 = t0.0: float32 [8, 6], strides [6, 1], contiguous, 192 bytes\n"
            "Numerics in force:\n"
            "  deterministic: true\n"
            "  float32_matmul_precision: highest\n");
}

TEST(RegionText, ScalarsAndRegionsWithoutInputs) {
  OpSignature signature;
  signature.device = DeviceType::kCuda;
  Node node;
  node.op = "aten::full";
  node.args = Json::array({Json::array(), 1e-05});
  node.outputs = {Floats({})};
  signature.nodes = {node};
  signature.outputs = {{0, 0}};
  EXPECT_EQ(DescribeRegion(signature),
            "Device: cuda\n"
            "Inputs:\n"
            "  none\n"
            "Calls:\n"
            "  t0 = aten::full([], 1e-05)\n"
            "      t0: float32 [], strides [], contiguous\n"
            "Outputs:\n"
            "  out0 = t0: float32 [], strides [], contiguous, 4 bytes\n");
}

std::string KindOf(std::vector<std::string> ops) {
  OpSignature signature;
  for (std::string& op : ops) {
    Node node;
    node.op = std::move(op);
    signature.nodes.push_back(node);
  }
  return RegionKind(signature);
}

TEST(RegionKindTest, EveryKindHasItsOps) {
  EXPECT_EQ(KindOf({"aten::_softmax"}), "softmax");
  EXPECT_EQ(KindOf({"aten::_log_softmax_backward_data"}), "softmax");
  EXPECT_EQ(KindOf({"aten::logsumexp"}), "softmax");
  EXPECT_EQ(KindOf({"aten::native_layer_norm_backward"}), "norm");
  EXPECT_EQ(KindOf({"aten::_fused_rms_norm"}), "norm");
  EXPECT_EQ(KindOf({"aten::cumsum"}), "scan");
  EXPECT_EQ(KindOf({"aten::sum.dim_IntList"}), "reduction");
  EXPECT_EQ(KindOf({"aten::var_mean.correction"}), "reduction");
  EXPECT_EQ(KindOf({"aten::max.dim"}), "reduction");
  EXPECT_EQ(KindOf({"aten::max_pool2d_with_indices"}), "pooling");
  EXPECT_EQ(KindOf({"aten::nll_loss_forward"}), "loss");
  EXPECT_EQ(KindOf({"aten::mm"}), "matmul");
  EXPECT_EQ(KindOf({"aten::addmm"}), "matmul");
  EXPECT_EQ(KindOf({"aten::convolution_backward"}), "convolution");
  EXPECT_EQ(KindOf({"aten::scaled_dot_product_attention"}), "attention");
  EXPECT_EQ(KindOf({"aten::relu"}), "other");
  EXPECT_EQ(KindOf({"aten::maximum"}), "other");
  EXPECT_EQ(KindOf({"other::mm"}), "other");
}

TEST(RegionKindTest, HeaviestCallDetermines) {
  EXPECT_EQ(KindOf({"aten::sum", "aten::_softmax", "aten::mul.Tensor"}), "softmax");
  EXPECT_EQ(KindOf({"aten::_log_softmax", "aten::nll_loss_forward"}), "loss");
  EXPECT_EQ(KindOf({"aten::native_layer_norm", "aten::addmm", "aten::gelu"}), "matmul");
  EXPECT_EQ(KindOf({}), "other");
}

}  // namespace
}  // namespace cudaforge
