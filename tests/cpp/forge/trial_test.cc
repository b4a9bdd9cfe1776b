#include "forge/trial.h"

#include <climits>
#include <cmath>

#include "forge/agent/strategy.h"
#include "tests/cpp/forge/agent_fakes.h"

namespace cudaforge {
namespace {

Candidate SomeCandidate(const std::string& code) {
  Candidate candidate = *TableSearch(1).Next();
  candidate.source.code = code;
  return candidate;
}

Trial SomeNode(int id, StepKind kind, std::optional<double> ns) {
  Trial node;
  node.id = id;
  node.kind = kind;
  node.session = "s";
  node.author = "agent:x";
  node.candidate = SomeCandidate(std::to_string(id));
  if (ns.has_value()) {
    node.ns = ns;
  } else {
    node.verdict = {VerdictKind::kWrongValues, "wrong", {{"worst", 3}}};
  }
  return node;
}

TEST(TrialTest, SurvivesJson) {
  Trial node = SomeNode(4, StepKind::kOptimize, 12.5);
  node.parents = {2, 3};
  node.duplicate_of = 1;
  node.judged_before = {{"verdict", "accepted"}, {"ns", 9.5}};
  node.evaluated = false;
  node.seconds = 3;
  node.resources = {{"k", 1}};
  node.profile = {{"tier", 1}};
  node.derived = {{"of_floor", 0.5}};
  node.advice = Advice{"i", "p"};
  node.silence = "s";
  node.hints = {"h"};
  node.prompts = {{{"name", "n"}}};
  LedgerEntry call;
  call.usage = {1, std::nullopt, 2};
  node.calls = {call};
  const Json json = node.ToJson();
  for (const char* field :
       {"author", "id", "parent", "kind", "language", "source", "plan", "verdict", "ns", "seconds",
        "resources", "profile", "derived", "advice", "prompts", "calls", "session"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  EXPECT_EQ(json["plan"]["launches"].size(), 1u);
  const auto back = Trial::FromJson(ParseJson(json.dump()).value());
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(back->ToJson(), json);

  Trial silent;
  silent.author = "agent:x";
  silent.session = "s";
  silent.answered = false;
  silent.reply = "cut in a character: \xc3";
  const auto silent_back = Trial::FromJson(silent.ToJson());
  ASSERT_TRUE(silent_back.ok()) << silent_back.status().ToString();
  EXPECT_FALSE(silent_back->answered);
  EXPECT_FALSE(silent_back->candidate.has_value());
}

TEST(TrialTest, InvalidNodeIsAnError) {
  const Json json = SomeNode(0, StepKind::kSeed, 1).ToJson();
  EXPECT_FALSE(Trial::FromJson({{"author", "generator:rows"}}).ok());
  EXPECT_FALSE(Trial::FromJson(Json::array()).ok());
  for (const char* field : {"id", "kind", "verdict", "calls", "language", "seconds", "plan"}) {
    Json changed = json;
    changed[field] = "\x01";
    EXPECT_FALSE(Trial::FromJson(changed).ok()) << field;
  }
}

TEST(TrialTest, NumbersOutOfRangeAreErrors) {
  const Json json = SomeNode(0, StepKind::kSeed, 1).ToJson();
  const auto check = [&json](const char* field, const Json& good, const std::vector<Json>& bad) {
    Json changed = json;
    changed[field] = good;
    EXPECT_TRUE(Trial::FromJson(changed).ok()) << field << good;
    for (const Json& value : bad) {
      changed[field] = value;
      const Status status = Trial::FromJson(changed).status();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << field << value;
      EXPECT_TRUE(status.message().starts_with(field)) << status.message();
    }
  };
  for (const char* field : {"ns", "rival_ns"}) {
    check(field, 9e17, {0, -1, 1e18, INFINITY, NAN, FloatToJson(INFINITY)});
  }
  for (const char* field : {"seconds", "device_seconds"}) {
    check(field, 1e9, {-1, 1.1e9, INFINITY, NAN, FloatToJson(NAN)});
  }
  for (const char* field : {"id", "parent", "duplicate_of"}) {
    check(field, INT_MAX - 1, {-1, INT_MAX, int64_t{INT_MAX} + 1});
  }
}

TEST(TrialTest, PromptNoteListsLeftOutDocuments) {
  Prompt prompt;
  prompt.name = "coder_seed";
  prompt.version = 3;
  prompt.sha256 = "5a";
  prompt.documents = {"a", "b"};
  Json note = {{"name", "coder_seed"}, {"version", 3}, {"sha256", "5a"}, {"documents", {"a", "b"}}};
  EXPECT_EQ(PromptNote(prompt), note);
  prompt.documents_left_out = {"c"};
  note["documents_left_out"] = Json::array({"c"});
  EXPECT_EQ(PromptNote(prompt), note);
}

TEST(TrialTest, DigestCoversWhatRuns) {
  const Candidate one = SomeCandidate("a");
  Candidate other = one;
  other.author = "somebody";
  other.params = {{"x", 1}};
  EXPECT_EQ(CandidateDigest(one), CandidateDigest(other));
  other.constraints.push_back({Constraint::Kind::kAligned, 0, 16});
  EXPECT_NE(CandidateDigest(one), CandidateDigest(other));
  EXPECT_NE(CandidateDigest(one), CandidateDigest(SomeCandidate("b")));
  Candidate launched = one;
  launched.plan.launches[0].grain = 2;
  EXPECT_NE(CandidateDigest(one), CandidateDigest(launched));
}

TEST(TrialTest, FindsTheLastSession) {
  const auto of = [](const char* session, int id) {
    return Json{{"session", session}, {"id", id}};
  };
  const Json generated = {{"author", "generator:rows"}};
  EXPECT_TRUE(LastSession({}).empty());
  EXPECT_TRUE(LastSession({generated}).empty());
  const auto last =
      LastSession({generated, of("a", 0), of("b", 0), of("a", 1), of("b", 1), generated});
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[0], of("b", 0));
  EXPECT_EQ(last[1], of("b", 1));
}

class BestFirstTest : public testing::Test {
 protected:
  // "optimize 3", "seed".
  std::string Next(const std::vector<Trial>& nodes) {
    const Step step = (*MakeStrategy("best-first"))->Choose(nodes);
    std::string text(StepKindName(step.kind));
    if (step.parent != nullptr) text += " " + std::to_string(step.parent->id);
    return text;
  }
};

TEST_F(BestFirstTest, Steps) {
  const Trial slow = SomeNode(0, StepKind::kSeed, 900);
  const Trial fast = SomeNode(1, StepKind::kOptimize, 300);
  const Trial slower = SomeNode(2, StepKind::kOptimize, 400);
  const Trial failed = SomeNode(3, StepKind::kOptimize, std::nullopt);
  const Trial repair = SomeNode(4, StepKind::kRepair, std::nullopt);
  const Trial again = SomeNode(5, StepKind::kRepair, std::nullopt);
  const Trial repaired = SomeNode(6, StepKind::kRepair, 350);
  EXPECT_EQ(Next({}), "seed");
  EXPECT_EQ(Next({slow}), "optimize 0");
  EXPECT_EQ(Next({slow, fast, slower}), "optimize 1");
  EXPECT_EQ(Next({slow, fast, slower, failed}), "repair 3");
  EXPECT_EQ(Next({slow, fast, slower, failed, repair}), "repair 4");
  EXPECT_EQ(Next({slow, fast, slower, failed, repair, again}), "optimize 1");
  EXPECT_EQ(Next({slow, fast, slower, failed, repaired}), "optimize 1");
  EXPECT_EQ(Next({failed, repair, again}), "seed");
  Trial silent = SomeNode(7, StepKind::kOptimize, std::nullopt);
  silent.answered = false;
  EXPECT_EQ(Next({slow, silent}), "optimize 0") << "there is nothing to repair";
  Trial cancelled = SomeNode(8, StepKind::kOptimize, 1);
  cancelled.evaluated = false;
  EXPECT_EQ(Next({slow, cancelled}), "optimize 0");
}

}  // namespace
}  // namespace cudaforge
