// A session that resumes an interrupted one.
#include <algorithm>

#include "cache/kernel_store.h"
#include "tests/cpp/forge/agent_fakes.h"

namespace cudaforge {
namespace {

class AgentResume : public AgentTest {
 protected:
  AgentResume() {
    settings_.budget = {.rounds = 5, .patience = 10};
    settings_.start = StartCandidate(0);
  }
  const std::vector<Row> rows_ = {{.ns = 900}, {.ns = 500},         {.wrong_case = 0},
                                  {.ns = 400}, {.compiles = false}, {.ns = 300}};
};

TEST_F(AgentResume, ContinuesAfterAKill) {
  CodeRows({1, 2, 3, 4, 5});
  const AgentOutcome whole = Run(rows_);
  const std::vector<Json> all = sunk_;
  ASSERT_EQ(all.size(), 6u);
  std::vector<std::string> prompts;
  for (const LlmRequest& request : coder_->requests) prompts.push_back(TextOf(request));

  // Killed after each of the nodes, which go through a store's text.
  for (size_t kept = 0; kept < all.size(); ++kept) {
    auto store = MakeMemoryKernelStore();
    ASSERT_TRUE(store->AddLineage(signature_.Key(), "cpu:test", {{{"author", "generator"}}}).ok());
    for (size_t i = 0; i < kept; ++i) {
      ASSERT_TRUE(
          store->AddLineage(signature_.Key(), "cpu:test", {ParseJson(all[i].dump()).value()}).ok());
    }
    settings_.earlier = LastSession(store->Lineage(signature_.Key(), "cpu:test"));
    ASSERT_EQ(settings_.earlier.size(), kept);
    sunk_.clear();
    std::vector<size_t> rest;
    for (size_t row = std::max<size_t>(kept, 1); row <= 5; ++row) rest.push_back(row);
    CodeRows(rest);
    const AgentOutcome outcome = Run(rows_);
    ASSERT_EQ(sunk_.size(), all.size() - kept);
    ASSERT_EQ(coder_->requests.size(), rest.size()) << "no call is repeated";
    for (size_t i = 0; i < rest.size(); ++i) {
      EXPECT_EQ(TextOf(coder_->requests[i]), prompts[rest[i] - 1]) << kept << " " << i;
    }
    for (size_t i = 0; i < sunk_.size(); ++i) {
      for (const char* field : {"id", "parent", "kind", "verdict", "ns", "source"}) {
        EXPECT_EQ(MemberOrNull(sunk_[i], field), MemberOrNull(all[kept + i], field)) << field;
      }
    }
    EXPECT_EQ(outcome.search.reason, whole.search.reason);
    ASSERT_TRUE(outcome.search.best.has_value());
    EXPECT_EQ(outcome.search.best->ns, 300);
    EXPECT_EQ(outcome.search.best->binary, "binary 5\n");
    EXPECT_EQ(outcome.ledger.Sum().calls, whole.ledger.Sum().calls);
    EXPECT_EQ(outcome.ledger.Sum().tokens(), whole.ledger.Sum().tokens());
  }
}

// Killed while a reply's candidate ran: the reply was paid for, and the next session judges it.
TEST_F(AgentResume, ReplyIsStoredBeforeItsCandidateRuns) {
  CodeRows({1, 2, 3, 4, 5});
  const AgentOutcome whole = Run(rows_);
  ASSERT_EQ(stored_.size(), 11u) << "a start, and each round before and after";
  ASSERT_EQ(stored_[3]["evaluated"], false);
  EXPECT_EQ(stored_[3]["verdict"]["verdict"], "not_judged");
  settings_.earlier = LastSession({stored_.begin(), stored_.begin() + 4});
  ASSERT_EQ(settings_.earlier.size(), 3u) << "of the first round, what came of it";
  sunk_.clear();
  CodeRows({3, 4, 5});
  const AgentOutcome outcome = Run(rows_);
  EXPECT_EQ(coder_->requests.size(), 3u);
  EXPECT_EQ(sunk_[0]["source"], whole.search.trials[2].ToJson()["source"]);
  EXPECT_EQ(sunk_[0]["verdict"]["verdict"], "wrong_values");
  EXPECT_EQ(sunk_[0]["parent"], whole.search.trials[2].ToJson()["parent"]);
  EXPECT_EQ(outcome.ledger.Sum().calls, whole.ledger.Sum().calls);
  EXPECT_EQ(outcome.search.best->ns, 300);
}

// The caller throws at any event: the ledger has all calls.
TEST_F(AgentResume, ThrowingCallbackLosesNoCall) {
  struct Stop {};
  const Usage usage{100, std::nullopt, 10};
  settings_.budget.rounds = 2;
  bool thrown = true;
  for (int at = 1; thrown; ++at) {
    Code({10, TextReply(RowReply(5), usage)});
    JudgeWith({10, TextReply(AdviceReply(), usage)});
    stored_.clear();
    settings_.earlier.clear();
    Cancel cancel;
    settings_.cancel = &cancel;
    thrown = false;
    int told = 0;
    runner_.emplace(rows_);
    const auto stop = [&](const Json&) {
      EXPECT_FALSE(thrown) << "told of something after it threw";
      thrown = ++told == at;
      if (thrown) throw Stop();
    };
    try {
      (void)RunWith(*runner_, *runner_, stop);
      EXPECT_FALSE(thrown);
    } catch (const Stop&) {
      EXPECT_TRUE(thrown && cancel.IsSet());
    }
    const auto calls = [this] {
      return static_cast<int64_t>(coder_->requests.size() + judge_->requests.size());
    };
    int64_t kept = 0;
    for (const Json& node : SettledNodes(stored_)) kept += std::ssize(node["calls"]);
    EXPECT_EQ(kept, calls()) << at;

    settings_.cancel = nullptr;
    settings_.earlier = LastSession(stored_);
    const LedgerSum sum = Run(rows_).ledger.Sum();
    EXPECT_EQ(sum.calls, calls()) << at;
    EXPECT_EQ(sum.tokens(), 110 * calls()) << at;
    EXPECT_EQ(sum.estimated, 0) << at;
  }
}

TEST_F(AgentResume, JudgesCostIsStoredBeforeTheCodersCall) {
  CodeRows({1, 3, 5});
  JudgeWith({3, TextReply(AdviceReply())});
  settings_.budget.rounds = 1;
  std::vector<Json> killed;  // stored during the Coder's call
  coder_->on_call = [&] { killed = stored_; };
  Run(rows_);
  settings_.earlier = LastSession(killed);
  ASSERT_EQ(settings_.earlier.size(), 2u);
  EXPECT_EQ(settings_.earlier[1]["answered"], false);
  EXPECT_EQ(settings_.earlier[1]["advice"]["plan"], "use wider loads");
  const AgentOutcome outcome = Run(rows_);
  EXPECT_EQ(judge_->requests.size(), 2u);
  EXPECT_EQ(outcome.ledger.Sum(AgentRole::kJudge).calls, 2);
  EXPECT_EQ(outcome.ledger.Sum(AgentRole::kCoder).calls, 1) << "the one that was cut is not known";
}

TEST_F(AgentResume, FinishedSessionOnlyReprovesItsBest) {
  CodeRows({1, 2, 3, 4, 5});
  Run(rows_);
  settings_.earlier = sunk_;
  sunk_.clear();
  CodeRows({});
  const AgentOutcome outcome = Run(rows_);
  EXPECT_TRUE(coder_->requests.empty());
  EXPECT_TRUE(sunk_.empty());
  EXPECT_EQ(outcome.search.best->ns, 300);
  EXPECT_EQ(runner_->compiles, 1);
}

TEST_F(AgentResume, WrongBestIsReplacedByTheNext) {
  CodeRows({1, 2, 3, 4, 5});
  Run(rows_);
  settings_.earlier = sunk_;
  settings_.budget.rounds = 6;
  sunk_.clear();
  std::vector<Row> rows = rows_;
  rows[5].wrong_case = 2;
  rows.push_back({.ns = 450});
  CodeRows({6});
  const AgentOutcome outcome = Run(rows);
  EXPECT_EQ(outcome.search.best->ns, 400);
}

TEST_F(AgentResume, RefusalOnRetestIsInTheLineage) {
  settings_.budget = {.rounds = 3, .patience = 10};
  CodeRows({5, 5, 2});
  Run(rows_);
  ASSERT_EQ(Column("verdict"), "accepted accepted accepted wrong_values");
  settings_.earlier = LastSession(stored_);
  settings_.budget.rounds = 4;
  std::vector<Row> rows = rows_;
  rows[5].wrong_case = 2;
  CodeRows({3});
  events_.clear();
  Run(rows);
  EXPECT_EQ(Column("id"), "0 1 2 3 4") << "each in its own place";
  EXPECT_EQ(Column("verdict"), "accepted wrong_values wrong_values wrong_values accepted");
  EXPECT_EQ(Column("duplicate_of"), "null null 1 null null");
  for (const Json& node : {sunk_[1], sunk_[2]}) {
    EXPECT_EQ(node["judged_before"], (Json{{"verdict", "accepted"}, {"ns", 300.0}}));
  }
  EXPECT_FALSE(sunk_[0].contains("judged_before"));
  EXPECT_EQ(sunk_[1]["calls"].size(), 1u) << "what it cost stays";
  const std::vector<Json> told = EventsOf("rejudged");
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0], (Json{{"event", "rejudged"},
                           {"round", 1},
                           {"before", "accepted"},
                           {"verdict", "wrong_values"},
                           {"message", sunk_[1]["verdict"]["message"]}}));

  // It stays refused, whatever its result would be now.
  settings_.earlier = LastSession(stored_);
  events_.clear();
  CodeRows({});
  EXPECT_EQ(Run(rows_).search.best->ns, 400);
  EXPECT_TRUE(EventsOf("rejudged").empty());
}

TEST_F(AgentResume, PromptsUseNewMeasurements) {
  CodeRows({1});
  settings_.budget.rounds = 1;
  Run(rows_);
  settings_.earlier = sunk_;
  settings_.earlier[1]["resources"] = {{"k", {{"registers", 99}}}};
  settings_.budget.rounds = 2;
  CodeRows({3});
  Run(rows_);
  ASSERT_EQ(coder_->requests.size(), 1u);
  EXPECT_NE(TextOf(coder_->requests[0]).find("k.registers: 8"), std::string::npos);
  EXPECT_EQ(TextOf(coder_->requests[0]).find("registers: 99"), std::string::npos);
}

TEST_F(AgentResume, LimitsIncludeEarlierSpending) {
  double now = 0;
  settings_.clock = [&now] { return now; };
  Code({TextReply(RowReply(1), {1000, std::nullopt, 2000})});
  coder_->on_call = [&now] { now += 100; };
  Run(rows_);
  ASSERT_EQ(sunk_.size(), 3u) << "start, a round, and a Coder that has no more replies";
  settings_.earlier = sunk_;

  settings_.budget.tokens = 3500;
  CodeRows({2});
  EXPECT_NE(Run(rows_).search.reason.find("3000 of 3500"), std::string::npos);
  EXPECT_TRUE(coder_->requests.empty());

  settings_.budget.tokens = 0;
  settings_.budget.seconds = 150;
  EXPECT_EQ(Run(rows_).search.reason, "the time of the budget is spent") << "200 s were";
  EXPECT_TRUE(coder_->requests.empty());

  settings_.budget.seconds = 1800;
  settings_.budget.rounds = 1;
  EXPECT_EQ(Run(rows_).search.reason, "made as many rounds as the budget allows (1)");
  EXPECT_TRUE(coder_->requests.empty());

  settings_.budget.rounds = 5;
  settings_.budget.usd = 0.005;
  settings_.prices = Prices::Parse(R"({"models": {"coder-1": {"input": 1, "output": 2}}})").value();
  EXPECT_NE(Run(rows_).search.reason.find("0.0050 of 0.0050"), std::string::npos)
      << "priced afterwards";
  EXPECT_TRUE(coder_->requests.empty());
}

TEST_F(AgentResume, AnInterruptedCandidateIsJudgedFirst) {
  Cancel cancel;
  settings_.cancel = &cancel;
  int runs = 0;
  prepare_ = [&](CountingRunner& runner) {
    runner.on_run = [&] {
      if (++runs == 5) cancel.Set();
    };
  };
  CodeRows({3});
  Run(rows_);
  ASSERT_EQ(Column("evaluated"), "null false");
  settings_.earlier = sunk_;
  settings_.cancel = nullptr;
  settings_.budget.rounds = 2;
  prepare_ = nullptr;
  sunk_.clear();
  CodeRows({5});
  const AgentOutcome outcome = Run(rows_);
  EXPECT_EQ(Column("id"), "2 3");
  EXPECT_EQ(Column("parent"), "0 2");
  EXPECT_EQ(Column("ns"), "400.0 300.0");
  EXPECT_TRUE(sunk_[0]["calls"].empty()) << "they stand in the node that was interrupted";
  EXPECT_EQ(coder_->requests.size(), 1u);
  EXPECT_EQ(outcome.ledger.Sum().calls, 2);
}

// A candidate that kills its process would kill every session that resumes.
TEST_F(AgentResume, CandidateThatKillsSessionsIsGivenUp) {
  std::function<void()> cancel_now;
  prepare_ = [&](CountingRunner& runner) {
    runner.on_run = [&] {  // in the Coder's candidate
      if (!sunk_.empty() && sunk_.back().contains("evaluated")) cancel_now();
    };
  };
  CodeRows({3});
  for (int session = 0; session < 2; ++session) {
    Cancel cancel;
    settings_.cancel = &cancel;
    cancel_now = [&cancel] { cancel.Set(); };
    Run(rows_);
    settings_.earlier.insert(settings_.earlier.end(), sunk_.begin(), sunk_.end());
    sunk_.clear();
  }
  settings_.cancel = nullptr;
  cancel_now = [] { FAIL() << "it is run again"; };
  settings_.budget.rounds = 1;
  Run(rows_);
  ASSERT_FALSE(sunk_.empty());
  EXPECT_EQ(sunk_[0]["verdict"]["verdict"], "crashed") << sunk_[0];
}

TEST_F(AgentResume, UnreadableNodesAreSkipped) {
  CodeRows({1});
  settings_.budget.rounds = 1;
  Run(rows_);
  settings_.earlier = {Json("x"), {{"session", "s1"}}, sunk_[0], Json::array(), sunk_[1]};
  sunk_.clear();
  EXPECT_EQ(Run(rows_).search.best->ns, 500);
  EXPECT_TRUE(sunk_.empty());
}

}  // namespace
}  // namespace cudaforge
