#include "forge/agent/coder.h"
#include "tests/cpp/forge/agent_fakes.h"

namespace cudaforge {
namespace {

constexpr const char* kPlan =
    R"json({"launches": [{"kernel": "k", "args": [{"in": 0}, {"out": 0}, {"int": "in0.size0"}],
            "grid": ["ceil_div(in0.size0, 256)", "1", "1"], "block": ["256", "1", "1"]}]})json";

std::string Fenced(const std::string& word, const std::string& body) {
  return "```" + word + "\n" + body + "\n```\n";
}

std::string Fault(const std::string& reply, Language language = Language::kCuda) {
  const auto candidate = ParseCoderReply(reply, language, "agent:x");
  EXPECT_TRUE(candidate.ok() || candidate.status().code() == StatusCode::kInvalidArgument);
  return candidate.status().message();
}

TEST(CoderReply, APlanAndASource) {
  const auto candidate =
      ParseCoderReply("First a thought.\n" + Fenced("json", kPlan) + "and\r\n" +
                          Fenced("cuda", "__global__ void k();\r\nint x;") + "Done.",
                      Language::kCuda, "agent:x");
  ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
  EXPECT_EQ(candidate->source.code, "__global__ void k();\nint x;\n");
  EXPECT_EQ(candidate->author, "agent:x");
  EXPECT_EQ(candidate->plan.launches.at(0).grid[0].text(), "ceil_div(in0.size0, 256)");
  EXPECT_EQ(candidate->plan.launches[0].attributes.cluster[2].text(), "1");
  EXPECT_EQ(candidate->plan.launches[0].dynamic_shared_bytes.text(), "0");
  EXPECT_TRUE(candidate->plan.scratch_bytes.empty());
}

TEST(CoderReply, AcceptsAllBlockNames) {
  for (const char* word : {"cuda", "CU", "cpp", "c++", "cc title=kernel", "", "c"}) {
    EXPECT_EQ(Fault(Fenced("json", kPlan) + Fenced(word, "int x;")), "") << word;
  }
  EXPECT_EQ(Fault(Fenced("", kPlan) + Fenced("cuda", "int x;")), "");
  EXPECT_EQ(Fault(Fenced("bash", "nvcc x.cu") + Fenced("cuda", "int x;") + Fenced("json", kPlan)),
            "");
}

TEST(CoderReply, AttributesAndZeroedScratch) {
  const auto candidate = ParseCoderReply(
      Fenced("json",
             R"({"scratch_bytes": [{"bytes": 64, "zeroed": true}], "launches": [{"kernel": "k",
                 "args": [], "grid": [8, 1, 1], "block": [32, 1, 1],
                 "attributes": {"cluster": [4, 1, 1], "cooperative": true}}]})") +
          Fenced("cuda", "int x;"),
      Language::kCuda, "agent:x");
  ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
  EXPECT_EQ(candidate->plan.launches[0].attributes.cluster[0].text(), "4");
  EXPECT_TRUE(candidate->plan.launches[0].attributes.cooperative);
  EXPECT_EQ(candidate->plan.scratch_bytes.at(0).bytes.text(), "64");
  EXPECT_TRUE(candidate->plan.scratch_bytes[0].zeroed);
}

TEST(CoderReply, TensorMaps) {
  const auto candidate = ParseCoderReply(
      Fenced("json",
             R"({"launches": [{"kernel": "k", "args": [{"tensor_map": 0}, {"tensor_map": 1}],
                               "grid": [8, 1, 1], "block": [32, 1, 1]}],
                 "tensor_maps": [{"of": {"in": 0}, "dtype": "float32", "box": [32, 16],
                                  "sizes": ["in0.size1", 50], "strides": [400], "swizzle": 128},
                                 {"of": {"out": 0}, "dtype": "int32", "box": [4], "sizes": [8]}]})") +
          Fenced("cuda", "int x;"),
      Language::kCuda, "agent:x");
  ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
  EXPECT_EQ(candidate->plan.launches[0].args.at(1).kind, LaunchArg::Kind::kTensorMap);
  ASSERT_EQ(candidate->plan.tensor_maps.size(), 2u);
  const TensorMap& map = candidate->plan.tensor_maps[0];
  EXPECT_EQ(map.sizes.at(1).text(), "50");
  EXPECT_EQ(map.strides.at(0).text(), "400");
  EXPECT_EQ(map.swizzle, 128);
  EXPECT_TRUE(candidate->plan.tensor_maps[1].strides.empty());
  EXPECT_EQ(candidate->plan.tensor_maps[1].swizzle, 0);
}

TEST(CoderReply, AcceptsIntegersAsExpressions) {
  const auto candidate = ParseCoderReply(
      Fenced("json",
             R"({"scratch_bytes": [1024], "launches": [{"kernel": "k", "args": [{"int": 7}],
                 "range": 8, "grain": 2}], "constraints": [{"aligned": 16, "in": 0}],
                 "author": "somebody", "code": "int evil;", "language": "cuda"})") +
          Fenced("cpp", "int x;"),
      Language::kCpu, "agent:x");
  ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
  EXPECT_EQ(candidate->plan.scratch_bytes.at(0).bytes.text(), "1024");
  EXPECT_EQ(candidate->plan.launches.at(0).range.text(), "8");
  EXPECT_EQ(candidate->plan.launches[0].args.at(0).expr.text(), "7");
  EXPECT_EQ(candidate->constraints.at(0).value, 16);
  EXPECT_EQ(candidate->author, "agent:x");
  EXPECT_EQ(candidate->source.language, Language::kCpu);
  EXPECT_EQ(candidate->source.code, "int x;\n");
}

TEST(CoderReply, ErrorsNameTheProblem) {
  const std::string plan = Fenced("json", kPlan);
  const std::string source = Fenced("cuda", "int x;");
  EXPECT_EQ(Fault(""), "the reply has no block of source instead of one");
  EXPECT_EQ(Fault(source), "the reply has no block of JSON with the launch plan instead of one");
  EXPECT_EQ(Fault(plan), "the reply has no block of source instead of one");
  EXPECT_EQ(Fault(plan + source + source), "the reply has 2 blocks of source instead of one");
  EXPECT_EQ(Fault(plan + "```cuda\nint x;"),
            "the reply has a code block that is not closed: was it cut off?");
  EXPECT_EQ(Fault(plan + Fenced("cuda", " \n\t")), "the reply has an empty block of source");
  EXPECT_EQ(Fault(plan + source + "\xff"), "the reply is not UTF-8");
  EXPECT_EQ(Fault(plan + source + std::string(1, '\0')), "the reply has a zero byte in it");
  EXPECT_NE(Fault(std::string(2 << 20, 'x')).find("over the limit"), std::string::npos);
  EXPECT_NE(Fault(Fenced("json", "{\"launches\": []}") + source).find("launches: 1 to 64"),
            std::string::npos);
  EXPECT_NE(Fault(Fenced("json", "{\"launches\": [{]}") + source).find("launch plan: "),
            std::string::npos);
  EXPECT_NE(Fault(plan + source, Language::kCpu).find("range"), std::string::npos);
}

// Truncated or changed anywhere, a reply is accepted or refused.
TEST(CoderReply, MutationsDoNotCrash) {
  const std::string reply = "x\n" + Fenced("json", kPlan) + Fenced("cuda", "int x;");
  for (size_t i = 0; i < reply.size(); ++i) {
    (void)Fault(reply.substr(0, i));
    for (const char c : {'\0', '`', '"', '{', '}', '[', ',', '\n', '\xff', '9'}) {
      std::string changed = reply;
      changed[i] = c;
      (void)Fault(changed);
      (void)Fault(changed, Language::kCpu);
    }
  }
}

TEST(JudgeReply, AdviceOrError) {
  const auto words = [](const std::string& reply) {
    return ParseJudgeReply(reply).status().message();
  };
  const auto advice =
      ParseJudgeReply("Well:\n```json\n{\"issue\": \"a\", \"plan\": \"b\", \"more\": [1],}\n```");
  ASSERT_TRUE(advice.ok()) << advice.status().ToString();
  EXPECT_EQ(advice->issue, "a");
  EXPECT_EQ(advice->plan, "b");
  EXPECT_EQ(words(R"({"issue": "a"})"), "the reply has no string \"plan\"");
  EXPECT_EQ(words(R"({"issue": 7, "plan": "b"})"), "the reply has no string \"issue\"");
  EXPECT_EQ(words(R"({"issue": " ", "plan": "b"})"), "the reply's \"issue\" is empty");
  std::string umlauts;
  for (int i = 0; i < 600; ++i) umlauts += "\xc3\xa4";
  EXPECT_EQ(words(Json{{"issue", umlauts}, {"plan", "b"}}.dump()), "");
  EXPECT_EQ(words(Json{{"issue", "a"}, {"plan", umlauts + "x"}}.dump()),
            "the reply's \"plan\" has 601 characters, over the limit of 600");
}

TEST(JudgeReply, SeveralAdvicesAreRefused) {
  const std::string one = R"({"issue": "a", "plan": "b"})", two = R"({"issue": "c", "plan": "d",})";
  for (const std::string& reply :
       {"[" + one + ", " + two + "]", "First " + one + " and then " + two + ".",
        "```json\n" + one + "\n```\n```json\n" + two + "\n```", two + "\n" + two}) {
    EXPECT_EQ(ParseJudgeReply(reply).status().message(),
              "the reply has 2 objects with an issue and a plan; expected one")
        << reply;
  }
  for (const std::string& reply : {"[" + one + "]", R"({"thought": "{x}"} )" + one,
                                   one + R"( {"confidence": 1} {}, or {"x)"}) {
    const Result<Advice> advice = ParseJudgeReply(reply);
    const bool taken = advice.ok() && advice->plan == "b";
    EXPECT_EQ(taken, !reply.starts_with("{\"thought")) << reply << advice.status().ToString();
  }
}

}  // namespace
}  // namespace cudaforge
