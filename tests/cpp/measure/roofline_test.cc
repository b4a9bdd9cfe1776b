#include "measure/roofline.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/cpp/measure/tensors.h"

namespace cudaforge {
namespace {

// One node; its only output is the region's.
OpSignature Region(const std::string& op, std::vector<TensorSpec> inputs, Json args,
                   TensorSpec output) {
  OpSignature signature;
  signature.device = DeviceType::kCuda;
  signature.inputs = std::move(inputs);
  signature.nodes.resize(1);
  signature.nodes[0].op = op;
  signature.nodes[0].args = std::move(args);
  signature.nodes[0].outputs = {std::move(output)};
  signature.outputs = {{0, 0}};
  return signature;
}

using Flops = std::map<std::string, double>;

TEST(RegionWork, PointwiseIsOneOperationAnElement) {
  const OpSignature add = Region("aten::add.Tensor", {Tensor({8, 100}), Tensor({100})},
                                 {In(0), In(1)}, Tensor({8, 100}));
  const RegionWork work = WorkOf(add);
  EXPECT_EQ(work.needed_bytes, 4 * (800 + 100 + 800));
  EXPECT_EQ(work.flops, (Flops{{"fp32_tflops", 800}}));
}

TEST(RegionWork, ReductionsCountTheirInputs) {
  const OpSignature sum = Region("aten::sum.dim_IntList", {Tensor({8, 100}, DType::kFloat64)},
                                 {In(0), {1}, false}, Tensor({8}, DType::kFloat64));
  EXPECT_EQ(WorkOf(sum).needed_bytes, 8 * (800 + 8));
  EXPECT_EQ(WorkOf(sum).flops, (Flops{{"fp64_tflops", 800}}));
}

TEST(RegionWork, ExpandedSharedAndUnusedInputsCountOnceOrNotAtAll) {
  TensorSpec expanded = Tensor({8, 100});
  expanded.strides = {0, 1};
  OpSignature add = Region("aten::add.Tensor", {Tensor({8, 100}), expanded, Tensor({1000})},
                           {In(0), In(1)}, Tensor({8, 100}));
  EXPECT_EQ(WorkOf(add).needed_bytes, 4 * (800 + 100 + 800));
  add.inputs[1] = Tensor({8, 100});
  add.aliases = {{0, 1}};
  EXPECT_EQ(WorkOf(add).needed_bytes, 4 * (800 + 800)) << "one tensor twice";
  for (int i : {0, 1}) add.inputs[static_cast<size_t>(i)].strides = {200, 1};
  EXPECT_EQ(WorkOf(add).needed_bytes, 4 * (1500 + 800)) << "halves of one packed tensor";
  add.outputs.push_back({0, 0});
  EXPECT_EQ(WorkOf(add).needed_bytes, 4 * (1500 + 800)) << "one output twice";
}

TEST(RegionWork, LookupsReadOnlyTheirRows) {
  const OpSignature lookup =
      Region("aten::embedding", {Tensor({50'000, 64}), Tensor({10}, DType::kInt64)},
             {In(0), In(1), -1, false, false}, Tensor({10, 64}));
  EXPECT_EQ(WorkOf(lookup).needed_bytes, 4 * 640 + 8 * 10 + 4 * 640);
}

TEST(RegionWork, IntermediatesAndViewsAreFree) {
  OpSignature chain =
      Region("aten::relu", {Tensor({8, 100})}, Json::array({In(0)}), Tensor({8, 100}));
  Node view;
  view.op = "aten::view";
  view.args = {{{"node", 0}, {"out", 0}}, {800}};
  view.outputs = {Tensor({800})};
  Node exp = view;
  exp.op = "aten::exp";
  exp.args = Json::array({{{"node", 1}, {"out", 0}}});
  chain.nodes.push_back(view);
  chain.nodes.push_back(exp);
  chain.outputs = {{2, 0}};
  EXPECT_EQ(WorkOf(chain).needed_bytes, 4 * (800 + 800));
  EXPECT_EQ(WorkOf(chain).flops, (Flops{{"fp32_tflops", 1600}}));
}

TEST(RegionWork, MatrixProducts) {
  const DType half = DType::kBFloat16;
  const OpSignature mm = Region("aten::mm", {Tensor({64, 32}, half), Tensor({32, 16}, half)},
                                {In(0), In(1)}, Tensor({64, 16}, half));
  EXPECT_EQ(WorkOf(mm).flops, (Flops{{"bf16_tensor_tflops", 2.0 * 64 * 32 * 16}}));
  EXPECT_EQ(WorkOf(mm).needed_bytes, 2 * (64 * 32 + 32 * 16 + 64 * 16));
  OpSignature addmm = Region("aten::addmm", {Tensor({16}), Tensor({64, 32}), Tensor({32, 16})},
                             {In(0), In(1), In(2)}, Tensor({64, 16}));
  EXPECT_EQ(WorkOf(addmm).flops, (Flops{{"fp32_product_tflops", 2.0 * 64 * 32 * 16}}));
  addmm.numerics["float32_matmul_precision"] = "high";
  EXPECT_EQ(WorkOf(addmm).flops, (Flops{{"bf16_tensor_tflops", 2.0 * 64 * 32 * 16}}));
  const OpSignature bmm = Region("aten::bmm", {Tensor({4, 64, 32}), Tensor({4, 32, 16})},
                                 {In(0), In(1)}, Tensor({4, 64, 16}));
  EXPECT_EQ(WorkOf(bmm).flops, (Flops{{"fp32_product_tflops", 2.0 * 4 * 64 * 32 * 16}}));
}

TEST(RegionWork, Convolutions) {
  const auto args = [](bool transposed, int groups) {
    return Json{In(0), In(1), nullptr, {1, 1}, {1, 1}, {1, 1}, transposed, {0, 0}, groups};
  };
  const OpSignature plain =
      Region("aten::convolution", {Tensor({2, 8, 10, 10}), Tensor({16, 4, 3, 3})}, args(false, 2),
             Tensor({2, 16, 10, 10}));
  EXPECT_EQ(WorkOf(plain).flops, (Flops{{"fp32_product_tflops", 2.0 * 2 * 16 * 100 * 4 * 9}}));
  const OpSignature transposed =
      Region("aten::convolution", {Tensor({2, 8, 10, 10}), Tensor({8, 16, 3, 3})}, args(true, 1),
             Tensor({2, 16, 10, 10}));
  EXPECT_EQ(WorkOf(transposed).flops, (Flops{{"fp32_product_tflops", 2.0 * 2 * 8 * 100 * 16 * 9}}));
}

TEST(RegionWork, Attention) {
  const auto flops = [](const char* op, Json rest) {
    const TensorSpec q = Tensor({2, 3, 128, 64}, DType::kFloat16);
    const TensorSpec k = Tensor({2, 3, 256, 64}, DType::kFloat16);
    Json args = {In(0), In(1), In(2)};
    args.insert(args.end(), rest.begin(), rest.end());
    return WorkOf(Region(op, {q, k, k}, args, q)).flops.at("fp16_tensor_tflops");
  };
  const double full = 2.0 * 6 * 128 * 256 * (64 + 64);
  const double causal = 2.0 * 6 * (128 * 129 / 2) * (64 + 64);
  EXPECT_EQ(flops("aten::scaled_dot_product_attention", {nullptr, 0.0, false}), full);
  EXPECT_EQ(flops("aten::scaled_dot_product_attention", {nullptr, 0.0, true}), causal);
  EXPECT_EQ(flops("aten::_scaled_dot_product_flash_attention_for_cpu", {0.0, true}), causal);
}

// Three float16 passes make a float32 product, so a kernel at the plain float32 rate is not at the
// limit.
TEST(RegionWork, Float32ProductsAreBoundByTensorCores) {
  const TensorSpec square = Tensor({1000, 1000});
  OpSignature mm = Region("aten::mm", {square, square}, {In(0), In(1)}, square);
  mm.device = DeviceType::kCpu;
  EXPECT_EQ(WorkOf(mm).flops, (Flops{{"fp32_tflops", 2e9}}));
  mm.device = DeviceType::kCuda;
  EXPECT_EQ(WorkOf(mm).flops, (Flops{{"fp32_product_tflops", 2e9}}));
  const auto floor_us = [&](const Json& facts) {
    return DerivedFacts(Json(), facts, mm, 0)["floor_us"].get<double>();
  };
  EXPECT_DOUBLE_EQ(floor_us({{"fp32_tflops", 50.0}, {"fp16_tensor_tflops", 600.0}}), 10);
  EXPECT_DOUBLE_EQ(floor_us({{"fp32_tflops", 50.0}, {"fp16_tensor_tflops", 60.0}}), 40);
  EXPECT_FALSE(DerivedFacts(Json(), {{"fp32_tflops", 50.0}}, mm, 0).contains("floor_us"))
      << "of an unknown rate no floor";
}

// 1 MB in, 1 MB out, 1e6 operations on a device of 1000 GB/s and 10 TFLOP/s.
class Derived : public testing::Test {
 protected:
  OpSignature relu_ =
      Region("aten::relu", {Tensor({250'000})}, Json::array({In(0)}), Tensor({250'000}));
  Json facts_ = {{"bandwidth_gb_s", 1000.0}, {"fp32_tflops", 10.0}};
};

TEST_F(Derived, NearTheFloorMemoryLimits) {
  const Json profile = {{"metrics",
                         {{"dram__bytes_read.sum", 1.2e6},
                          {"dram__bytes_write.sum", 0.8e6},
                          {"smsp__issue_active.avg.pct_of_peak_sustained_active", 20.0}}}};
  const Json derived = DerivedFacts(profile, facts_, relu_, 2500);
  EXPECT_EQ(derived["needed_bytes"], 2'000'000);
  EXPECT_DOUBLE_EQ(derived["moved_bytes"].get<double>(), 2e6);
  EXPECT_DOUBLE_EQ(derived["moved_over_needed"].get<double>(), 1);
  EXPECT_DOUBLE_EQ(derived["achieved_gb_s"].get<double>(), 800);
  EXPECT_DOUBLE_EQ(derived["of_bandwidth"].get<double>(), 0.8);
  EXPECT_DOUBLE_EQ(derived["floor_us"].get<double>(), 2);
  EXPECT_DOUBLE_EQ(derived["of_floor"].get<double>(), 0.8);
  EXPECT_DOUBLE_EQ(derived["of_peak_flops"].get<double>(), 0.025 / 2.5);
  EXPECT_EQ(derived["limiter"], "memory");
}

TEST_F(Derived, BytesMovedTwiceLimitAboveTheFloor) {
  const Json profile = {{"metrics", {{"dram__bytes.sum", 6e6}}}};
  const Json derived = DerivedFacts(profile, facts_, relu_, 8000);
  EXPECT_DOUBLE_EQ(derived["moved_over_needed"].get<double>(), 3);
  EXPECT_DOUBLE_EQ(derived["of_bandwidth"].get<double>(), 0.75);
  EXPECT_DOUBLE_EQ(derived["of_floor"].get<double>(), 0.25);
  EXPECT_EQ(derived["limiter"], "memory");
}

TEST_F(Derived, ComputeLimitsByOperationsOrByIssue) {
  OpSignature mm = Region("aten::mm", {Tensor({1000, 1000}), Tensor({1000, 1000})}, {In(0), In(1)},
                          Tensor({1000, 1000}));
  mm.device = DeviceType::kCpu;
  const Json derived = DerivedFacts(Json(), facts_, mm, 250'000);
  EXPECT_DOUBLE_EQ(derived["floor_us"].get<double>(), 200);
  EXPECT_DOUBLE_EQ(derived["of_peak_flops"].get<double>(), 0.8);
  EXPECT_EQ(derived["limiter"], "compute");
  const Json busy = {{"metrics", {{"smsp__issue_active.avg.pct_of_peak_sustained_active", 90.0}}}};
  EXPECT_EQ(DerivedFacts(busy, facts_, relu_, 20'000)["limiter"], "compute");
  EXPECT_EQ(DerivedFacts(Json(), facts_, relu_, 20'000)["limiter"], "latency");
}

TEST(AtMeasuredTime, SharesOfTheProfiledTimeBecomeSharesOfTheCalls) {
  const Json profile = {{"tier", 1},
                        {"metrics",
                         {{"gpu__time_duration.sum", 80'000.0},
                          {"dram__throughput.avg.pct_of_peak_sustained_elapsed", 10.0},
                          {"sm__throughput.avg.pct_of_peak_sustained_elapsed", 60.0},
                          {"smsp__issue_active.avg.pct_of_peak_sustained_active", 50.0}}}};
  const Json now = AtMeasuredTime(profile, 20'000);
  EXPECT_EQ(now["metrics"], (Json{{"dram__throughput.avg.pct_of_peak_sustained_elapsed", 40.0},
                                  {"sm__throughput.avg.pct_of_peak_sustained_elapsed", 100.0},
                                  {"smsp__issue_active.avg.pct_of_peak_sustained_active", 50.0}}));
  EXPECT_EQ(now["tier"], 1);
  for (const Json& other :
       {Json(), Json{{"note", "refused"}}, Json{{"metrics", {{"cycles", 1}}}}}) {
    EXPECT_EQ(AtMeasuredTime(other, 20'000), other);
  }
  EXPECT_EQ(AtMeasuredTime(profile, 0), profile);
}

TEST_F(Derived, CacheMissesAreBytesOnTheCpu) {
  const Json profile = {{"metrics", {{"cache_misses", 100.0}, {"cycles", 1e5}}}};
  EXPECT_EQ(DerivedFacts(profile, facts_, relu_, 1000)["moved_bytes"], 6400.0);
}

TEST_F(Derived, UnknownFactsAreLeftOut) {
  EXPECT_EQ(
      DerivedFacts(Json(), Json::object(), relu_, 1000),
      (Json{{"needed_bytes", 2'000'000}, {"needed_flops", 250e3}, {"achieved_gb_s", 2000.0}}));
  const Json work = {{"needed_bytes", 2'000'000}, {"needed_flops", 250e3}};
  EXPECT_EQ(DerivedFacts(Json(), Json::object(), relu_, 0), work);
  const Json derived = DerivedFacts(
      {{"metrics", "junk"}}, {{"bandwidth_gb_s", "fast"}, {"fp32_tflops", 0}}, relu_, std::nan(""));
  EXPECT_EQ(derived, work);
  EXPECT_EQ(DerivedFacts(Json(), {{"bandwidth_gb_s", 1000.0}}, relu_, 0)["floor_us"], 2.0);
}

}  // namespace
}  // namespace cudaforge
