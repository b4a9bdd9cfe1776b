// Replies in Triton, with a fake compiler that answers by the kernel's name.
#include <gtest/gtest.h>

#include "base/file.h"
#include "forge/agent/triton.h"
#include "tests/cpp/forge/contract_example.h"

namespace cudaforge {
namespace {

// A module with one entry, as Triton writes them.
std::string Module(const std::string& entry) {
  return ".version 8.7\n.target sm_90a\n.address_size 64\n"
         ".extern .shared .align 16 .b8 global_smem[];\n"
         ".visible .entry " +
         entry + "(\n.param .u64 a\n)\n{\nret;\n}\n";
}

Json Answer(const std::string& kernel, int parameters) {
  return {
      {"ok", true},           {"ptx", Module(kernel)}, {"entry", kernel},         {"threads", 64},
      {"shared_bytes", 1024}, {"cluster", {1, 1, 1}},  {"parameters", parameters}};
}

class AgentTriton : public testing::Test {
 protected:
  // The fake compiler's answer for `kernel`.
  void WillAnswer(const std::string& kernel, const std::string& text) {
    cases_ += "  *'\"kernel\":\"" + kernel + "\"'*) cat " + Store(kernel, text) + " ;;\n";
  }
  void WillCompile(const std::string& kernel, int parameters) {
    WillAnswer(kernel, Answer(kernel, parameters).dump());
  }
  Result<Candidate> Read(const Json& plan, const std::string& source = "kernels") {
    const std::string script = folder_.path() + "/compiler";
    const std::string log = folder_.path() + "/asked";
    EXPECT_TRUE(WriteFileAtomic(script, "in=$(cat); printf '%s\\n' \"$in\" >> " + log +
                                            "\ncase $in in\n" + cases_ + "  *) exit 3 ;;\nesac\n")
                    .ok());
    const std::string reply =
        "Words.\n```json\n" + plan.dump() + "\n```\n```triton\n" + source + "\n```\n";
    auto candidate =
        ParseTritonReply(reply, region_, {{"sh", script}, "cuda:sm_90a"}, "agent:me", Cancel());
    asked_.clear();
    if (const auto text = ReadFile(log); text.ok()) {
      for (size_t at = 0; at < text->size(); at = text->find('\n', at) + 1) {
        asked_.push_back(*ParseJson(text->substr(at, text->find('\n', at) - at)));
      }
    }
    return candidate;
  }
  std::string Why(const Json& plan) { return Read(plan).status().message(); }

  OpSignature region_ = ExampleRegion(DeviceType::kCuda);
  std::vector<Json> asked_;

 private:
  std::string Store(const std::string& name, const std::string& text) {
    const std::string file = folder_.path() + "/" + name + ".answer";
    EXPECT_TRUE(WriteFileAtomic(file, text).ok());
    return file;
  }
  TempDir folder_ = TempDir::Create("cudaforge-triton").value();
  std::string cases_;
};

Json LaunchOf(const std::string& kernel, Json args) {
  return {{"kernel", kernel}, {"args", std::move(args)}, {"grid", {"in0.size0", 1, 1}}};
}

TEST_F(AgentTriton, BecomesACandidateInPtx) {
  WillCompile("first", 5);
  Json launch = LaunchOf("first", {{{"in", 0}}, {{"out", 0}}, {{"int", "in0.size1"}}});
  launch["constants"] = {{"BLOCK", 1024}};
  launch["num_warps"] = 2;
  const Json plan = {{"launches", {launch}}};
  const auto candidate = Read(plan, "def first(): pass");
  ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
  EXPECT_EQ(candidate->source.language, Language::kPtx);
  EXPECT_EQ(candidate->source.code, Module("first"));
  EXPECT_EQ(candidate->author, "agent:me");
  EXPECT_EQ(candidate->params["triton"]["source"], "def first(): pass\n");
  EXPECT_EQ(candidate->params["triton"]["plan"], plan);
  EXPECT_TRUE(candidate->Validate(region_).ok());
  const Launch& made = candidate->plan.launches.at(0);
  EXPECT_EQ(made.kernel, "first");
  ASSERT_EQ(made.args.size(), 5u) << "and two pointers that Triton adds";
  EXPECT_EQ(made.args[4].kind, LaunchArg::Kind::kInt);
  EXPECT_EQ(made.block[0].text(), "64");
  EXPECT_EQ(made.dynamic_shared_bytes.text(), "1024");
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0], (Json{{"source", "def first(): pass\n"},
                             {"kernel", "first"},
                             {"arguments", {"*fp32", "*fp32", "i64"}},
                             {"aligned", {true, true, false}},
                             {"constants", {{"BLOCK", 1024}}},
                             {"num_warps", 2},
                             {"num_stages", 3},
                             {"capability", 90}}));
}

TEST_F(AgentTriton, SeveralKernelsAreOneModule) {
  WillCompile("first", 2);
  WillCompile("second", 2);
  region_.inputs[0].alignment = 4;
  const Json first = LaunchOf("first", {{{"in", 0}}, {{"scratch", 0}}});
  const auto candidate =
      Read({{"launches", {first, LaunchOf("second", {{{"scratch", 0}}, {{"out", 0}}}), first}},
            {"scratch_bytes", {"1024"}},
            {"scratch_types", {"fp64"}}});
  ASSERT_TRUE(candidate.ok()) << candidate.status().ToString();
  EXPECT_EQ(asked_.size(), 2u) << "what is launched twice is compiled once";
  EXPECT_EQ(asked_[0]["arguments"], (Json{"*fp32", "*fp64"}));
  EXPECT_EQ(asked_[0]["aligned"], (Json{false, true}));
  const std::string body = Module("second").substr(Module("second").find(".visible"));
  EXPECT_EQ(candidate->source.code, Module("first") + body);
  EXPECT_EQ(candidate->plan.launches.size(), 3u);
}

TEST_F(AgentTriton, ErrorsAreForTheCoder) {
  WillAnswer("broken", Json{{"ok", false}, {"error", "line 3: no such op"}}.dump());
  WillAnswer("odd", "no JSON");
  WillCompile("many", 9);
  WillCompile("first", 1);
  const auto plan = [](const Json& launch) { return Json{{"launches", Json::array({launch})}}; };
  const Json args = Json::array({Json{{"in", 0}}});
  EXPECT_NE(Why(plan(LaunchOf("broken", args))).find("line 3: no such op"), std::string::npos);
  EXPECT_NE(Why(plan(LaunchOf("odd", args))).find("without an answer"), std::string::npos);
  EXPECT_NE(Why(plan(LaunchOf("unheard", args))).find("without an answer"), std::string::npos);
  EXPECT_NE(Why(plan(LaunchOf("many", args))).find("9 parameters"), std::string::npos);
  EXPECT_NE(Why(plan(LaunchOf("first", {{{"in", 7}}}))).find("no argument"), std::string::npos);
  EXPECT_NE(Why(plan(LaunchOf("first", {{{"scratch", 0}}}))).find("no argument"),
            std::string::npos);
  EXPECT_NE(Why({{"launches", Json::array()}}).find("launches"), std::string::npos);
  EXPECT_NE(Why({{"launches", "many"}}).find("launches"), std::string::npos);
  EXPECT_NE(Why(plan({{"kernel", "first"}})).find("args"), std::string::npos);
  Json other = LaunchOf("first", args);
  other["constants"] = {{"BLOCK", 2}};
  EXPECT_NE(Why({{"launches", {LaunchOf("first", args), other}}}).find("one kernel for each"),
            std::string::npos);
}

}  // namespace
}  // namespace cudaforge
