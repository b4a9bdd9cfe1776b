#include "forge/agent/agents.h"
#include "tests/cpp/forge/agent_fakes.h"

namespace cudaforge {
namespace {

class AgentSession : public AgentTest {};

TEST_F(AgentSession, RepairsThenOptimises) {
  CodeRows({0, 1, 2, 3});
  JudgeWith({TextReply(AdviceReply("a semicolon")), TextReply(AdviceReply("another index")),
             TextReply(AdviceReply("wider loads"))});
  const AgentOutcome outcome =
      Run({{.compiles = false}, {.wrong_case = 0}, {.ns = 1000}, {.ns = 500}});
  EXPECT_EQ(Column("kind"), "seed repair repair optimize");
  EXPECT_EQ(Column("parent"), "null 0 1 2");
  EXPECT_EQ(Column("verdict"), "compile_error wrong_values accepted accepted");
  ASSERT_TRUE(outcome.search.best.has_value());
  EXPECT_EQ(outcome.search.best->candidate.source.code, "3\n");
  EXPECT_EQ(outcome.search.best->ns, 500);
  EXPECT_EQ(outcome.search.best->candidate.author, "agent:openai:coder-1");
  EXPECT_EQ(outcome.search.best->verification["cases"].size(), 3u);
  EXPECT_EQ(JsonOf(outcome.search.trials), sunk_);
  EXPECT_EQ(outcome.search.reason, "made as many rounds as the budget allows (4)");

  // Each prompt has the last round's findings and the Judge's advice.
  ASSERT_EQ(coder_->requests.size(), 4u);
  ASSERT_EQ(judge_->requests.size(), 3u);
  EXPECT_EQ(sunk_[1]["prompts"][0]["name"], "judge_repair");
  EXPECT_EQ(sunk_[1]["prompts"][1]["name"], "coder_repair");
  EXPECT_EQ(sunk_[3]["prompts"][0]["name"], "judge_optimize");
  EXPECT_EQ(sunk_[3]["prompts"][1]["name"], "coder_optimize");
  EXPECT_NE(TextOf(judge_->requests[0]).find("expected ';'"), std::string::npos);
  EXPECT_NE(TextOf(coder_->requests[1]).find("expected ';'"), std::string::npos);
  EXPECT_NE(TextOf(coder_->requests[1]).find("a semicolon"), std::string::npos);
  EXPECT_NE(TextOf(coder_->requests[2]).find("output 0 is wrong"), std::string::npos);
  EXPECT_NE(TextOf(coder_->requests[3]).find("wider loads"), std::string::npos);
  EXPECT_EQ(sunk_[3]["advice"]["plan"], "wider loads");
  EXPECT_TRUE(sunk_[0]["advice"].is_null());
}

TEST_F(AgentSession, StartIsOptimisedWithoutCost) {
  settings_.start = StartCandidate(0);
  settings_.budget.rounds = 1;
  CodeRows({1});
  const AgentOutcome outcome = Run({{.ns = 900}, {.ns = 800}});
  EXPECT_EQ(Column("kind"), "start optimize");
  EXPECT_EQ(Column("author"), "generator:rows agent:openai:coder-1");
  EXPECT_EQ(Column("parent"), "null 0");
  EXPECT_TRUE(sunk_[0]["calls"].empty());
  EXPECT_EQ(sunk_[1]["calls"].size(), 1u);
  EXPECT_EQ(outcome.search.best->ns, 800);
  EXPECT_FALSE(EventsOf("round")[0].contains("near"));

  settings_.start_near = "0123";
  CodeRows({});
  Run({{.ns = 900}, {.ns = 800}});
  EXPECT_EQ(EventsOf("round")[2]["near"], "0123");
  EXPECT_FALSE(EventsOf("round")[3].contains("near")) << "of the start alone";
}

TEST_F(AgentSession, FailedStartIsRepaired) {
  settings_.start = StartCandidate(0);
  settings_.budget.rounds = 1;
  CodeRows({1});
  Run({{.wrong_case = 1}, {.ns = 800}});
  EXPECT_EQ(Column("kind"), "start repair");
  EXPECT_EQ(Column("verdict"), "wrong_values accepted");
}

TEST_F(AgentSession, ContinuesFromTheBest) {
  CodeRows({0, 1, 2, 3});
  const AgentOutcome outcome = Run({{.ns = 500}, {.ns = 900}, {.ns = 400}, {.ns = 450}});
  EXPECT_EQ(Column("kind"), "seed optimize optimize optimize");
  EXPECT_EQ(Column("parent"), "null 0 0 2");
  EXPECT_EQ(outcome.search.best->ns, 400);
  std::string best;
  for (const Json& event : EventsOf("candidate")) best += event["best"] == true ? "1" : "0";
  EXPECT_EQ(best, "1010");
}

TEST_F(AgentSession, ReturnsToTheBestAfterTwoRepairs) {
  settings_.budget = {.rounds = 6, .patience = 10};
  CodeRows({0, 1, 2, 3, 4, 5});
  Run({{.ns = 500},
       {.wrong_case = 0},
       {.wrong_case = 1},
       {.wrong_case = 2},
       {.compiles = false},
       {.ns = 400}});
  EXPECT_EQ(Column("kind"), "seed optimize repair repair optimize repair");
  EXPECT_EQ(Column("parent"), "null 0 1 2 0 4");
}

TEST_F(AgentSession, NewSeedWithoutACorrectKernel) {
  CodeRows({0, 1, 2, 3});
  const AgentOutcome outcome =
      Run({{.wrong_case = 0}, {.wrong_case = 0}, {.compiles = false}, {.wrong_case = 2}});
  EXPECT_EQ(Column("kind"), "seed repair repair seed");
  EXPECT_FALSE(outcome.search.best.has_value());
  EXPECT_EQ(outcome.search.reason,
            "no candidate was right: made as many rounds as the budget allows (4); the last: "
            "output 0 is wrong");
  EXPECT_NE(TextOf(coder_->requests[3]).find("round 2, repair of round 1: compile_error"),
            std::string::npos);
}

TEST_F(AgentSession, DuplicateIsNotRun) {
  settings_.budget = {.rounds = 5, .patience = 3};
  settings_.start = StartCandidate(0);
  CodeRows({1, 1, 1, 2});
  const AgentOutcome outcome = Run({{.ns = 500}, {.ns = 700}, {.ns = 600}});
  EXPECT_EQ(runner_->compiles, 2);
  EXPECT_EQ(Column("duplicate_of"), "null null 1 1");
  EXPECT_EQ(Column("verdict"), "accepted accepted accepted accepted");
  EXPECT_EQ(sunk_[2]["ns"], 700.0);
  EXPECT_EQ(outcome.search.reason, "no gain in 3 rounds");
  EXPECT_NE(TextOf(coder_->requests[2]).find("the kernel of round 1 once more, not run again"),
            std::string::npos);
  EXPECT_EQ(TextOf(coder_->requests[1]).find("once more"), std::string::npos);
}

TEST_F(AgentSession, RepairPromptNamesADuplicate) {
  CodeRows({0, 0, 1});
  settings_.budget.rounds = 3;
  Run({{.wrong_case = 0}, {.ns = 5}});
  EXPECT_EQ(runner_->compiles, 2);
  EXPECT_EQ(Column("verdict"), "wrong_values wrong_values accepted");
  EXPECT_NE(TextOf(coder_->requests[2]).find("not run again; it was: output 0 is wrong"),
            std::string::npos);
}

TEST_F(AgentSession, MetricsBelongToTheShownKernel) {
  CodeRows({0, 1, 2});
  settings_.budget.rounds = 3;
  JudgeWith({TextReply(AdviceReply()), TextReply(AdviceReply())});
  Run({{.ns = 500}, {.ns = 900}, {.ns = 400}});
  EXPECT_EQ(runner_->tiers, (std::vector<int>{4, 3, 4}));
  for (const LlmRequest& request : judge_->requests) {  // about row 0, the best both times
    EXPECT_NE(TextOf(request).find("loads_of_row_0"), std::string::npos);
    EXPECT_EQ(TextOf(request).find("loads_of_row_1"), std::string::npos);
  }
  EXPECT_EQ(sunk_[1]["profile"]["tier"], 3);
  EXPECT_TRUE(sunk_[1].contains("derived"));
  for (const Json& event : EventsOf("candidate")) EXPECT_FALSE(event.contains("no_counters"));
}

TEST_F(AgentSession, MetricsCanBeWithheld) {
  CodeRows({0, 1});
  settings_.budget.rounds = 2;
  settings_.metrics = false;
  JudgeWith({TextReply(AdviceReply())});
  Run({{.ns = 500}, {.ns = 400}});
  EXPECT_TRUE(runner_->tiers.empty());
  EXPECT_FALSE(sunk_[0].contains("profile"));
  EXPECT_FALSE(sunk_[0].contains("derived"));
  EXPECT_FALSE(EventsOf("candidate").at(0).contains("no_counters")) << "nobody asked for them";
  EXPECT_EQ(TextOf(judge_->requests.at(0)).find("loads_of_row"), std::string::npos);
}

TEST_F(AgentSession, LeftOutDocumentsAreListed) {
  settings_.budget.rounds = 1;
  CodeRows({0});
  settings_.max_documents = 0;
  Run({{.ns = 500}});
  const Json& note = sunk_.at(0)["prompts"].at(0);
  EXPECT_EQ(note["documents"], (Json{"contract/cpu", "contract/verification"}));
  EXPECT_FALSE(note["documents_left_out"].empty());

  sunk_.clear();
  CodeRows({0});
  settings_.max_documents = size_t{1} << 20;
  Run({{.ns = 500}});
  EXPECT_FALSE(sunk_.at(0)["prompts"].at(0).contains("documents_left_out"));
}

TEST_F(AgentSession, UnsupportedProfileIsTriedOnce) {
  prepare_ = [](CountingRunner& runner) {
    runner.profile_fault = Status::Unsupported("no counters");
  };
  CodeRows({0, 1});
  settings_.budget.rounds = 2;
  Run({{.ns = 500}, {.ns = 400}});
  EXPECT_EQ(runner_->tiers.size(), 1u);
  EXPECT_EQ(sunk_[1]["profile"]["note"], "no counters");
  for (const Json& event : EventsOf("candidate")) EXPECT_EQ(event["no_counters"], "no counters");
}

TEST_F(AgentSession, UnreadableJudgeIsRetriedOnce) {
  CodeRows({0, 1, 2});
  settings_.budget.rounds = 3;
  JudgeWith({TextReply("I think..."), TextReply(AdviceReply("tile it")),
             TextReply("{\"issue\": 1}"), TextReply("")});
  Run({{.ns = 500}, {.ns = 400}, {.ns = 300}});
  ASSERT_EQ(judge_->requests.size(), 4u);
  EXPECT_EQ(sunk_[1]["advice"]["plan"], "tile it");
  EXPECT_EQ(sunk_[1]["prompts"].size(), 3u);
  EXPECT_EQ(sunk_[1]["prompts"][1]["name"], "judge_again");
  EXPECT_EQ(sunk_[1]["calls"][1]["prompt"], "judge_again");
  EXPECT_EQ(judge_->requests[1].messages.size(), judge_->requests[0].messages.size() + 2);
  EXPECT_EQ(judge_->requests[1].messages[2].author, Speaker::kAssistant);
  EXPECT_EQ(judge_->requests[1].messages[2].content, "I think...");
  EXPECT_NE(TextOf(judge_->requests[1]).find("no JSON object"), std::string::npos);
  EXPECT_TRUE(sunk_[2]["advice"].is_null());
  EXPECT_EQ(sunk_[2]["silence"], "the reply has no JSON object");
  EXPECT_EQ(Column("verdict"), "accepted accepted accepted");
}

TEST_F(AgentSession, UnreachableJudgeDoesNotEndTheSession) {
  CodeRows({0, 1, 2, 3});
  JudgeWith({Status::Unavailable("down"), Status::Timeout("slow"), TextReply(AdviceReply())});
  Run({{.ns = 500}, {.ns = 400}, {.ns = 300}, {.ns = 200}});
  EXPECT_EQ(Column("verdict"), "accepted accepted accepted accepted");
  EXPECT_EQ(sunk_[1]["silence"], "unavailable: down");
  EXPECT_EQ(sunk_[2]["silence"], "timeout: slow");
  EXPECT_EQ(sunk_[3]["advice"]["issue"], "too many loads");
}

TEST_F(AgentSession, UnreachableCoderEndsTheSession) {
  for (const Status& fault : {Status::Unavailable("down"), Status::Timeout("slow")}) {
    sunk_.clear();
    Code({TextReply(RowReply(0)), fault, TextReply(RowReply(1))});
    const AgentOutcome outcome = Run({{.ns = 500}, {.ns = 400}});
    EXPECT_EQ(outcome.search.best->ns, 500);
    EXPECT_EQ(outcome.search.reason, "the Coder gave no reply: " + fault.ToString());
    ASSERT_EQ(sunk_.size(), 2u);
    EXPECT_EQ(sunk_[1]["answered"], false);
    EXPECT_EQ(sunk_[1]["calls"][0]["error"], fault.ToString());
    EXPECT_EQ(outcome.ledger.Sum().failed, 1);
    EXPECT_TRUE(outcome.answered);
    Code({fault});
    EXPECT_FALSE(Run({}).answered);
  }
}

TEST_F(AgentSession, ReasonNamesTheLastWrongCandidate) {
  Code({TextReply(RowReply(0)), Status::Unavailable("down")});
  const AgentOutcome outcome = Run({{.wrong_case = 0}});
  const std::string& reason = outcome.search.reason;
  EXPECT_TRUE(reason.starts_with("no candidate was right: the Coder gave no reply: ")) << reason;
  const std::string wrong = sunk_[0]["verdict"]["message"];
  EXPECT_TRUE(reason.ends_with("; the last: " + wrong)) << reason;
}

TEST_F(AgentSession, InvalidReplyIsRefusedAndRepaired) {
  Code({TextReply("I cannot do that."), TextReply(RowReply(0))});
  settings_.budget.rounds = 2;
  JudgeWith({});
  Run({{.ns = 500}});
  EXPECT_EQ(Column("verdict"), "refused accepted");
  EXPECT_EQ(Column("kind"), "seed repair");
  EXPECT_NE(sunk_[0]["verdict"]["message"].get<std::string>().find("no block of source"),
            std::string::npos);
  EXPECT_EQ(sunk_[0]["reply"], "I cannot do that.");
  EXPECT_FALSE(sunk_[0].contains("source"));
  EXPECT_NE(TextOf(coder_->requests[1]).find("no block of source"), std::string::npos);
  EXPECT_NE(TextOf(coder_->requests[1]).find("I cannot do that."), std::string::npos);
  EXPECT_TRUE(judge_->requests.empty()) << "there is no kernel to judge";
}

TEST_F(AgentSession, RepliesWithoutACandidateAreDistinguished) {
  settings_.budget.rounds = 2;
  Code({TextReply("I cannot do that."), TextReply("Nor that.")});
  const AgentOutcome none = Run({});
  EXPECT_TRUE(none.answered);
  EXPECT_FALSE(none.has_candidate);
  const std::string& reason = none.search.reason;
  EXPECT_TRUE(reason.starts_with("no reply has a candidate: made as many rounds ")) << reason;
  EXPECT_NE(reason.find("no block of source"), std::string::npos) << reason;

  Code({TextReply("I cannot do that."), TextReply(RowReply(0))});
  EXPECT_TRUE(Run({{.wrong_case = 0}}).has_candidate);
}

TEST_F(AgentSession, StartThatIsTheRivalIsTimedOnce) {
  settings_.start = StartCandidate(0);
  settings_.start_is_rival = true;
  settings_.rival = "built-in";
  settings_.rival_ns = 50;  // by another clock
  settings_.budget.rounds = 1;
  CodeRows({1, 2});
  Run({{.ns = 900}, {.ns = 450}, {.ns = 300}});
  EXPECT_EQ(Column("rival_ns"), "900.0 900.0");
  const std::vector<Json> told = EventsOf("candidate");
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0]["speedup"], 1.0);
  EXPECT_EQ(told[1]["speedup"], 2.0);
  const Json rival = {{"event", "rival"}, {"rival", "built-in"}, {"us", 0.9}};
  EXPECT_EQ(EventsOf("rival"), std::vector<Json>{rival});
  ASSERT_EQ(coder_->requests.size(), 1u);
  EXPECT_NE(TextOf(coder_->requests[0]).find("built-in, 0.9 us"), std::string::npos);

  // A resumed session measures its start itself.
  settings_.earlier = LastSession(stored_);
  settings_.budget.rounds = 2;
  events_.clear();
  Run({{.ns = 900}, {.ns = 450}, {.ns = 300}});
  EXPECT_EQ(EventsOf("rival"), std::vector<Json>{rival});
  EXPECT_EQ(Column("rival_ns"), "900.0 900.0 900.0");
}

TEST_F(AgentSession, WrongStartIsNoRival) {
  settings_.start = StartCandidate(0);
  settings_.start_is_rival = true;
  settings_.rival = "built-in";
  settings_.rival_ns = 50;
  settings_.budget.rounds = 1;
  CodeRows({1});
  Run({{.wrong_case = 0}, {.ns = 450}});
  EXPECT_EQ(Column("rival_ns"), "50.0 50.0");
  ASSERT_EQ(EventsOf("rival").size(), 1u);
  EXPECT_EQ(EventsOf("rival")[0]["us"], 0.05);
}

TEST_F(AgentSession, HintsAreInTheNextPrompts) {
  CodeRows({0, 1, 2});
  settings_.budget.rounds = 3;
  JudgeWith({TextReply(AdviceReply()), TextReply(AdviceReply())});
  int asked = 0;
  settings_.hints = [&asked] {
    return ++asked == 2 ? std::vector<std::string>{"try shared memory"}
                        : std::vector<std::string>();
  };
  Run({{.ns = 500}, {.ns = 400}, {.ns = 300}});
  EXPECT_EQ(TextOf(coder_->requests[0]).find("shared memory"), std::string::npos);
  EXPECT_NE(TextOf(judge_->requests[0]).find("try shared memory"), std::string::npos);
  EXPECT_NE(TextOf(coder_->requests[1]).find("try shared memory"), std::string::npos);
  EXPECT_EQ(TextOf(coder_->requests[2]).find("shared memory"), std::string::npos);
  EXPECT_EQ(sunk_[1]["hints"], Json::array({"try shared memory"}));
}

TEST_F(AgentSession, EmptyDeviceFieldsAreLeftOut) {
  prepare_ = [](CountingRunner& runner) { runner.facts = {{"name", "a device"}, {"note", ""}}; };
  arch_.cores = 2;
  CodeRows({0});
  settings_.budget.rounds = 1;
  Run({{.ns = 500}});
  const std::string told = TextOf(coder_->requests[0]);
  EXPECT_NE(told.find("name: a device"), std::string::npos) << told;
  EXPECT_NE(told.find("cores: 2"), std::string::npos);
  EXPECT_EQ(told.find("note:"), std::string::npos);
  EXPECT_EQ(told.find("compiler:"), std::string::npos);
}

TEST_F(AgentSession, ReportsAllEvents) {
  CodeRows({0, 1});
  settings_.budget.rounds = 2;
  JudgeWith({TextReply(AdviceReply(), {900, 7, 20})});
  const AgentOutcome outcome = Run({{.ns = 500}, {.ns = 400}});
  std::string order;
  for (const Json& event : events_) order += event["event"].get<std::string>() + " ";
  EXPECT_EQ(order, "round ask call candidate round ask call advice ask call candidate agents_end ");
  EXPECT_EQ(EventsOf("round")[1],
            (Json{{"event", "round"}, {"round", 1}, {"kind", "optimize"}, {"parent", 0}}));
  EXPECT_EQ(EventsOf("call")[1]["role"], "judge");
  EXPECT_EQ(EventsOf("advice")[0]["issue"], "too many loads");
  const Json first = EventsOf("candidate")[0], second = EventsOf("candidate")[1];
  EXPECT_EQ(second["ns"], 400.0);
  EXPECT_TRUE(first["advice"].is_null());
  EXPECT_EQ(second["advice"], sunk_[1]["advice"]);
  EXPECT_GT(second["input_tokens"], first["input_tokens"]) << "of both calls";
  EXPECT_GT(second["output_tokens"], 0);
  for (const char* field : {"seconds", "device_seconds"}) {
    EXPECT_EQ(second[field], sunk_[1][field]) << field;
  }
  EXPECT_EQ(second["cached_input_tokens"], 7);
  EXPECT_TRUE(second["usd"].is_null()) << "nobody knows the price";
  EXPECT_EQ(events_.back()["ledger"], outcome.ledger.ToJson());
  EXPECT_EQ(events_.back()["reason"], outcome.search.reason);
}

TEST_F(AgentSession, TwoUnjudgeableCandidatesEndTheSession) {
  CodeRows({0, 1, 2, 3});
  prepare_ = [](CountingRunner& runner) { runner.fail_timing_after = 0; };
  const AgentOutcome outcome = Run({{}, {}, {}, {}});
  EXPECT_EQ(Column("verdict"), "crashed crashed");
  EXPECT_NE(outcome.search.reason.find("candidates cannot be run: I/O error: gone"),
            std::string::npos)
      << outcome.search.reason;
}

TEST_F(AgentSession, UnjudgeableStartMakesNoCall) {
  settings_.start = StartCandidate(0);
  CodeRows({1});
  prepare_ = [](CountingRunner& runner) { runner.fault = Status::Unavailable("no compiler"); };
  Run({{}, {}});
  EXPECT_TRUE(coder_->requests.empty());
  EXPECT_EQ(Column("verdict"), "crashed");
}

TEST_F(AgentSession, UnusableSettings) {
  runner_.emplace(std::vector<Row>{{}});
  EXPECT_EQ(TryRun().status().code(), StatusCode::kInvalidArgument);
  CodeRows({0});
  settings_.session = "";
  EXPECT_EQ(TryRun().status().code(), StatusCode::kInvalidArgument);
  settings_.session = "s1";
  settings_.budget.usd = 1;
  const auto unpriced = TryRun();
  EXPECT_EQ(unpriced.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(unpriced.status().message().find("openai:coder-1"), std::string::npos);
  settings_.prices = Prices::Parse(R"({"models": {"coder-1": {"input": 1, "output": 1}}})").value();
  JudgeWith({});
  EXPECT_NE(TryRun().status().message().find("openai:judge-1"), std::string::npos);
  EXPECT_TRUE(coder_->requests.empty());
}

}  // namespace
}  // namespace cudaforge
