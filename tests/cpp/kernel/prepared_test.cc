// Prepared operands in a candidate's plan.
#include <gtest/gtest.h>

#include <functional>

#include "kernel/candidate.h"
#include "kernel/tensor_map.h"

namespace cudaforge {
namespace {

using Kind = LaunchArg::Kind;

LaunchArg Arg(Kind kind, int index) {
  LaunchArg arg;
  arg.kind = kind;
  arg.index = index;
  return arg;
}

// mm(float32[64, 64], float32[64, 64]); the second is frozen.
OpSignature FrozenMm() {
  OpSignature signature;
  signature.device = DeviceType::kCuda;
  const TensorSpec spec{DType::kFloat32, {64, 64}, {64, 1}, 16};
  signature.inputs = {spec, spec};
  signature.inputs[1].frozen = true;
  Node node;
  node.op = "aten::mm";
  node.args = {{{"in", 0}}, {{"in", 1}}};
  node.outputs = {{DType::kFloat32, {64, 64}, {64, 1}}};
  signature.nodes = {node};
  signature.outputs = {{0, 0}};
  return signature;
}

Launch LaunchWith(const char* kernel, std::vector<LaunchArg> args) {
  Launch launch;
  launch.kernel = kernel;
  launch.args = std::move(args);
  return launch;
}

Candidate Prepared() {
  Candidate candidate;
  candidate.source = {Language::kCuda, "code"};
  candidate.author = "generator:product";
  candidate.plan.scratch_bytes = {128};
  candidate.plan.prepared_bytes = {IntExpr::Parse("in1.size0 * 256").value()};
  candidate.plan.prepare = {
      LaunchWith("split", {Arg(Kind::kInput, 1), Arg(Kind::kPrepared, 0), Arg(Kind::kScratch, 0)})};
  candidate.plan.launches = {LaunchWith(
      "product", {Arg(Kind::kInput, 0), Arg(Kind::kPrepared, 0), Arg(Kind::kOutput, 0)})};
  return candidate;
}

TEST(PreparedTest, RoundTrip) {
  const Json json = Prepared().ToJson();
  EXPECT_EQ(json["prepared_bytes"], Json::array({"in1.size0 * 256"}));
  EXPECT_EQ(json["prepare"][0]["args"][1], (Json{{"prepared", 0}}));
  EXPECT_TRUE(PlanFieldsOf(json).contains("prepare"));
  const Result<Candidate> parsed = Candidate::FromJson(json);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->ToJson(), json);
  EXPECT_TRUE(parsed->Validate(FrozenMm()).ok());
}

TEST(PreparedTest, PlansWithoutItHaveNoField) {
  Candidate candidate = Prepared();
  candidate.plan.prepare.clear();
  candidate.plan.prepared_bytes.clear();
  EXPECT_FALSE(candidate.ToJson().contains("prepare"));
  EXPECT_FALSE(candidate.ToJson().contains("prepared_bytes"));
}

TEST(PreparedTest, AgentsMayNotPrepare) {
  for (const char* field : {"prepare", "prepared_bytes"}) {
    Json json = Prepared().ToJson();
    json["author"] = "agent:mailbox";
    EXPECT_FALSE(Candidate::FromJson(json).ok());
    json.erase(field);
    EXPECT_FALSE(Candidate::FromJson(json).ok());
  }
}

TEST(PreparedTest, ValidateChecksThePlan) {
  const auto refused = [](const std::function<void(Candidate&, OpSignature&)>& change) {
    Candidate candidate = Prepared();
    OpSignature signature = FrozenMm();
    change(candidate, signature);
    return candidate.Validate(signature).code() == StatusCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused([](Candidate&, OpSignature&) {}));
  EXPECT_TRUE(refused([](Candidate&, OpSignature& s) { s.inputs[1].frozen = false; }));
  const auto prepare_with = [&](const LaunchArg& arg) {
    return refused([&](Candidate& c, OpSignature&) { c.plan.prepare[0].args.push_back(arg); });
  };
  EXPECT_TRUE(prepare_with(Arg(Kind::kInput, 0)));
  EXPECT_TRUE(prepare_with(Arg(Kind::kOutput, 0)));
  EXPECT_TRUE(prepare_with(Arg(Kind::kPrepared, 1)));
  EXPECT_TRUE(refused([](Candidate& c, OpSignature&) { c.plan.prepare.clear(); }));
  EXPECT_TRUE(refused([](Candidate& c, OpSignature&) { c.plan.prepared_bytes = {-1}; }));
  EXPECT_TRUE(refused([](Candidate& c, OpSignature&) {
    c.plan.prepare[0].attributes.programmatic_dependent_launch = true;
  }));
  EXPECT_TRUE(refused([](Candidate& c, OpSignature&) {
    c.plan.launches[0].args.push_back(Arg(Kind::kPrepared, 2));
  }));
}

TEST(PreparedTest, TensorMapsOfPreparedBuffers) {
  Candidate candidate = Prepared();
  TensorMap map{Arg(Kind::kPrepared, 0), "float32", {64, 64}, {256}, {32, 8}, 0};
  candidate.plan.tensor_maps = {map};
  candidate.plan.launches[0].args.push_back(Arg(Kind::kTensorMap, 0));
  candidate.plan.prepare[0].args.push_back(Arg(Kind::kTensorMap, 0));
  EXPECT_TRUE(candidate.Validate(FrozenMm()).ok()) << candidate.Validate(FrozenMm()).ToString();
  candidate.plan.prepared_bytes = {64 * 256 - 1};
  EXPECT_FALSE(candidate.Validate(FrozenMm()).ok()) << "it reaches beyond the buffer";
  candidate.plan.prepared_bytes = {64 * 256};
  candidate.plan.tensor_maps[0].of = Arg(Kind::kInput, 0);
  EXPECT_FALSE(candidate.Validate(FrozenMm()).ok()) << "`prepare` maps an input that may change";
}

}  // namespace
}  // namespace cudaforge
