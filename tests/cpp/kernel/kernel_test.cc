#include <gtest/gtest.h>

#include <functional>

#include "kernel/candidate.h"
#include "kernel/int_expr.h"

namespace cudaforge {
namespace {

OpSignature Signature(DeviceType device) {
  OpSignature signature;
  signature.device = device;
  signature.inputs = {{DType::kFloat32, {6, 100}, {100, 1}, 16}};
  Node node;
  node.op = "aten::relu";
  node.args = {{{"in", 0}}};
  node.outputs = {{DType::kFloat32, {6, 100}, {100, 1}}};
  signature.nodes = {node};
  signature.outputs = {{0, 0}};
  return signature;
}

int64_t Value(const std::string& text) {
  return *IntExpr::Parse(text)->Evaluate(Signature(DeviceType::kCpu));
}

TEST(IntExprTest, Evaluates) {
  EXPECT_EQ(Value("1 + 2 * 3 - 4 / 2"), 5);
  EXPECT_EQ(Value("(1+2)*3 % 4"), 1);
  EXPECT_EQ(Value("-3 + 1"), -2);
  EXPECT_EQ(Value("in0.size0 * in0.stride0"), 600);
  EXPECT_EQ(Value("ceil_div(out0.size1, 32)"), 4);
  EXPECT_EQ(Value("min(max(2, 7), 5)"), 5);
  EXPECT_EQ(*IntExpr(-4).Evaluate(Signature(DeviceType::kCpu)), -4);
}

TEST(IntExprTest, RefusesBadText) {
  for (const std::string& text :
       {std::string(""), std::string("1 +"), std::string("system(1)"), std::string("in0"),
        std::string("in0.data"), std::string("in1000.size0"), std::string("out0.stride0"),
        std::string("1 2"), std::string("99999999999999999999"), std::string("min(1)"),
        std::string(100, '(') + "1" + std::string(100, ')'), std::string(100, '-') + "1",
        std::string(2000, '1')}) {
    EXPECT_FALSE(IntExpr::Parse(text).ok()) << text;
  }
}

TEST(IntExprTest, EvaluationErrors) {
  for (const char* text : {"1 / (in0.size0 - 6)", "9223372036854775807 + 1", "in1.size0",
                           "in0.size5", "4611686018427387904 * 2", "ceil_div(1, in0.size0 - 6)"}) {
    const Result<IntExpr> expr = IntExpr::Parse(text);
    ASSERT_TRUE(expr.ok()) << expr.status().ToString();
    EXPECT_FALSE(expr->Evaluate(Signature(DeviceType::kCpu)).ok()) << text;
  }
}

Candidate Good(Language language) {
  Candidate candidate;
  candidate.source = {language, "code"};
  Launch launch;
  launch.kernel = "k";
  launch.args.push_back({LaunchArg::Kind::kInput, 0, {}, 0});
  launch.args.push_back({LaunchArg::Kind::kOutput, 0, {}, 0});
  launch.args.push_back({LaunchArg::Kind::kInt, 0, *IntExpr::Parse("in0.size1"), 0});
  launch.args.push_back({LaunchArg::Kind::kFloat, 0, {}, 0.5});
  if (language != Language::kCpu) {
    launch.grid[0] = *IntExpr::Parse("in0.size0");
    launch.block[0] = 256;
    candidate.constraints = {{Constraint::Kind::kAligned, 0, 32}};
  } else {
    launch.range = *IntExpr::Parse("in0.size0");
  }
  candidate.plan.launches = {launch};
  candidate.plan.scratch_bytes = {64};
  candidate.author = "test";
  return candidate;
}

TEST(CandidateTest, RoundTrip) {
  for (Language language : {Language::kCuda, Language::kCpu, Language::kPtx}) {
    const Json json = Good(language).ToJson();
    const Result<Candidate> parsed = Candidate::FromJson(json);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(parsed->ToJson(), json);
    const bool cuda = DeviceOf(language) == DeviceType::kCuda;
    EXPECT_TRUE(parsed->Validate(Signature(cuda ? DeviceType::kCuda : DeviceType::kCpu)).ok());
    EXPECT_FALSE(parsed->Validate(Signature(cuda ? DeviceType::kCpu : DeviceType::kCuda)).ok());
  }
}

TEST(CandidateTest, CpuKernelRequiresAtMostElementAlignment) {
  Candidate candidate = Good(Language::kCpu);
  for (const int64_t bytes : {4, 8}) {
    candidate.constraints = {{Constraint::Kind::kAligned, 0, bytes}};
    EXPECT_EQ(candidate.Validate(Signature(DeviceType::kCpu)).ok(), bytes == 4);
  }
}

TEST(CandidateTest, ARangeIsAtMost2To62) {
  Candidate candidate = Good(Language::kCpu);
  candidate.plan.launches[0].range = *IntExpr::Parse("4611686018427387904");
  EXPECT_TRUE(candidate.Validate(Signature(DeviceType::kCpu)).ok());
  candidate.plan.launches[0].range = *IntExpr::Parse("4611686018427387905");
  const Status status = candidate.Validate(Signature(DeviceType::kCpu));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("range"), std::string::npos) << status.message();
}

TEST(CandidateTest, AgentIsIdentifiedByAuthor) {
  EXPECT_EQ(AgentAuthor("openai:gpt-5"), "agent:openai:gpt-5");
  EXPECT_TRUE(IsByAgent(AgentAuthor("command:python3")));
  for (const char* other : {"generator:rows", "agent", "an agent:x", ""}) {
    EXPECT_FALSE(IsByAgent(other)) << other;
  }
}

TEST(CandidateTest, LanguagesHaveNames) {
  EXPECT_EQ(*ParseLanguage("ptx"), Language::kPtx);
  EXPECT_EQ(LanguageName(Language::kPtx), "ptx");
  EXPECT_EQ(DeviceOf(Language::kPtx), DeviceType::kCuda);
  EXPECT_EQ(DeviceOf(Language::kCuda), DeviceType::kCuda);
  EXPECT_EQ(DeviceOf(Language::kCpu), DeviceType::kCpu);
  for (const Language language : {Language::kAten, Language::kLibrary}) {
    EXPECT_EQ(*ParseLanguage(LanguageName(language)), language);
    EXPECT_FALSE(HasDeviceCode(language));
  }
  for (const char* name : {"", "PTX", "ptx ", "cubin", "sass"}) {
    EXPECT_EQ(ParseLanguage(name).status().code(), StatusCode::kInvalidArgument) << name;
  }
}

TEST(CandidateTest, PtxIsPlannedAsCudaIs) {
  Json ptx = Good(Language::kPtx).ToJson();
  EXPECT_EQ(ptx["language"], "ptx");
  ptx["language"] = "cuda";
  EXPECT_EQ(ptx, Good(Language::kCuda).ToJson());
  for (const char* field : {"grid", "block", "dynamic_shared_bytes"}) {
    Json json = Good(Language::kPtx).ToJson();
    json["launches"][0].erase(field);
    EXPECT_FALSE(Candidate::FromJson(json).ok()) << field;
  }
  Candidate large = Good(Language::kPtx);
  large.plan.launches[0].block[1] = 8;
  EXPECT_FALSE(large.Validate(Signature(DeviceType::kCuda)).ok());
}

TEST(CandidateTest, AttributesOfALaunch) {
  Candidate candidate = Good(Language::kCuda);
  EXPECT_FALSE(candidate.ToJson()["launches"][0].contains("attributes"));
  candidate.plan.launches.push_back(candidate.plan.launches[0]);
  LaunchAttributes& attributes = candidate.plan.launches[1].attributes;
  attributes.cluster[0] = 2;
  attributes.cooperative = attributes.programmatic_dependent_launch = true;
  const Json json = candidate.ToJson();
  EXPECT_EQ(json["launches"][1]["attributes"]["cluster"], Json({"2", "1", "1"}));
  EXPECT_EQ(Candidate::FromJson(json)->ToJson(), json);
  EXPECT_TRUE(candidate.Validate(Signature(DeviceType::kCuda)).ok());
  candidate.plan.launches[0].attributes.programmatic_dependent_launch = true;
  EXPECT_FALSE(candidate.Validate(Signature(DeviceType::kCuda)).ok()) << "on no launch of the plan";
  Json beside = Good(Language::kCuda).ToJson();
  beside["launches"][0]["cluster"] = {"4", "1", "1"};
  EXPECT_EQ(Candidate::FromJson(beside)->plan.launches[0].attributes.cluster[0].text(), "4");
  beside["launches"][0]["attributes"]["cluster"] = {"2", "1", "1"};
  EXPECT_FALSE(Candidate::FromJson(beside).ok());
  Json by_agent = json;
  by_agent["author"] = AgentAuthor("test");
  EXPECT_FALSE(Candidate::FromJson(by_agent).ok()) << "it might read what is not written yet";
  by_agent["launches"][1]["attributes"].erase("programmatic_dependent_launch");
  EXPECT_TRUE(Candidate::FromJson(by_agent).ok());
}

TEST(CandidateTest, ScratchMayBeZeroed) {
  Candidate candidate = Good(Language::kCpu);
  candidate.plan.scratch_bytes.emplace_back(IntExpr(32), true);
  const Json json = candidate.ToJson();
  EXPECT_EQ(json["scratch_bytes"], Json::parse(R"(["64", {"bytes": "32", "zeroed": true}])"));
  const Candidate parsed = Candidate::FromJson(json).value();
  EXPECT_FALSE(parsed.plan.scratch_bytes[0].zeroed);
  EXPECT_TRUE(parsed.plan.scratch_bytes[1].zeroed);
  EXPECT_TRUE(parsed.Validate(Signature(DeviceType::kCpu)).ok());
}

// Parsed and printed, but refused by Validate.
TEST(CandidateTest, UnsupportedFeaturesAreRefused) {
  const auto unsupported = [](const std::function<void(Candidate&)>& change) {
    Candidate candidate = Good(Language::kCuda);
    change(candidate);
    const Json json = candidate.ToJson();
    const Result<Candidate> parsed = Candidate::FromJson(json);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(parsed->ToJson(), json);
    EXPECT_EQ(parsed->Validate(Signature(DeviceType::kCuda)).code(), StatusCode::kUnsupported);
  };
  using Kind = LaunchArg::Kind;
  unsupported([](Candidate& c) { c.plan.launches[0].args[0].kind = Kind::kInOut; });
  unsupported(
      [](Candidate& c) { c.plan.launches[0].args[0] = {.kind = Kind::kSymbol, .symbol = "s0"}; });
  for (const Language language : {Language::kAten, Language::kLibrary}) {
    const auto built_in = [language](Candidate& c) {
      c.source.language = language;
      c.plan.launches.clear();
    };
    if (language == Language::kAten) unsupported(built_in);
    Candidate of_agent = Good(Language::kCuda);
    built_in(of_agent);
    of_agent.author = AgentAuthor("x");
    EXPECT_EQ(Candidate::FromJson(of_agent.ToJson()).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(CandidateTest, RefusesHostileJson) {
  const auto refused = [](const std::function<void(Json&)>& change) {
    Json json = Good(Language::kCuda).ToJson();
    change(json);
    EXPECT_FALSE(Candidate::FromJson(json).ok()) << json.dump().substr(0, 400);
  };
  refused([](Json& j) { j = nullptr; });
  refused([](Json& j) { j["language"] = "python"; });
  refused([](Json& j) { j["code"] = std::string((1 << 20) + 1, 'x'); });
  refused([](Json& j) { j["launches"] = Json::array(); });
  refused([](Json& j) { j["launches"][0]["kernel"] = "a; b"; });
  refused([](Json& j) { j["launches"][0]["kernel"] = ""; });
  refused([](Json& j) { j["launches"][0]["grid"] = {"1", "1"}; });
  refused([](Json& j) { j["launches"][0]["grid"] = {"1", "1", 1}; });
  refused([](Json& j) { j["launches"][0]["args"][0] = {{"pointer", 123}}; });
  refused([](Json& j) { j["launches"][0]["args"][0] = {{"in", -1}}; });
  refused([](Json& j) { j["launches"][0]["args"][0] = {{"symbol", "s0; x"}}; });
  refused([](Json& j) { j["launches"][0]["attributes"] = {{"priority", 1}}; });
  refused([](Json& j) { j["launches"][0]["attributes"] = {{"cooperative", 1}}; });
  refused([](Json& j) { j["launches"][0]["attributes"] = {{"cluster", {"1", "1"}}}; });
  refused([](Json& j) { j["tensor_maps"] = {{{"of", {{"in", 0}}}}}; });
  refused([](Json& j) { j["tensor_maps"] = 1; });
  refused([](Json& j) { j["scratch_bytes"] = {12}; });
  refused([](Json& j) { j["scratch_bytes"] = {{{"zeroed", true}}}; });
  refused([](Json& j) { j["constraints"] = {{{"aligned", "16"}, {"in", 0}}}; });
}

TEST(CandidateTest, ValidateChecksAgainstTheSignature) {
  const auto refused = [](const std::function<void(Candidate&)>& change) {
    Candidate candidate = Good(Language::kCuda);
    change(candidate);
    EXPECT_FALSE(candidate.Validate(Signature(DeviceType::kCuda)).ok());
  };
  refused([](Candidate& c) { c.plan.launches[0].args[0].index = 1; });
  refused([](Candidate& c) {
    c.plan.launches[0].args[0].kind = LaunchArg::Kind::kScratch, c.plan.scratch_bytes.clear();
  });
  refused([](Candidate& c) { c.plan.launches[0].block[0] = 1025; });
  refused([](Candidate& c) { c.plan.launches[0].block[1] = 8; });
  refused([](Candidate& c) { c.plan.launches[0].grid[0] = 0; });
  refused([](Candidate& c) { c.plan.launches[0].grid[1] = 65536; });
  refused([](Candidate& c) { c.plan.launches[0].attributes.cluster[0] = 17; });
  refused([](Candidate& c) { c.plan.launches[0].dynamic_shared_bytes = -1; });
  refused([](Candidate& c) { c.plan.scratch_bytes[0] = -1; });
  refused([](Candidate& c) { c.plan.scratch_bytes[0] = int64_t{65} << 30; });
  refused([](Candidate& c) { c.constraints[0].value = 3; });
  refused([](Candidate& c) { c.constraints[0].index = 1; });
  refused([](Candidate& c) { c.constraints[0].index = -1; });
}

}  // namespace
}  // namespace cudaforge
