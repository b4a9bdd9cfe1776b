#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "tests/cpp/forge/fakes.h"

namespace cudaforge {
namespace {

class WalkTest : public testing::Test {
 protected:
  SearchOutcome Run(std::vector<Row> rows) {
    const size_t count = rows.size();
    runner_.emplace(std::move(rows));
    auto outcome = Search(std::make_unique<TableSearch>(count), *runner_);
    EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
    return std::move(outcome).value();
  }
  Result<SearchOutcome> Search(std::unique_ptr<TableSearch> search, TableRunner& runner) {
    search->log = &told_;
    LocalEvaluator evaluator(signature_, runner, runner);
    std::vector<Walk> walks;
    walks.push_back({"table", std::move(search)});
    return SearchWalks(std::move(walks), evaluator, budget_,
                       [&](const Json& event) { events_.push_back(event); });
  }
  static VerdictKind KindOf(const SearchOutcome& outcome, size_t i) {
    return outcome.trials.at(i).verdict.kind;
  }
  // The input set that trial `i` failed at.
  static std::string SetOf(const SearchOutcome& outcome, size_t i) {
    return outcome.trials.at(i).verdict.evidence.value("input_set", "");
  }

  OpSignature signature_ = ReluOfEight();
  ForgeBudget budget_;
  std::optional<TableRunner> runner_;
  std::vector<SearchFeedback> told_;
  std::vector<Json> events_;
};

TEST_F(WalkTest, FastestCorrectIsBest) {
  auto outcome = Run({{.ns = 900},
                      {.ns = 100, .wrong_case = 3},
                      {.ns = 500},
                      {.ns = 50, .wrong_case = 0},
                      {.ns = 10, .compiles = false},
                      {.ns = 700},
                      {.ns = 5, .run = VerdictKind::kMemoryFault}});
  ASSERT_TRUE(outcome.best.has_value());
  EXPECT_EQ(outcome.best->candidate.source.code, "2");
  EXPECT_EQ(outcome.best->binary, "binary 2");
  EXPECT_EQ(outcome.best->ns, 500);
  ASSERT_EQ(outcome.trials.size(), 7u);
  EXPECT_EQ(KindOf(outcome, 1), VerdictKind::kWrongValues);
  EXPECT_EQ(SetOf(outcome, 1), "set3");
  EXPECT_EQ(KindOf(outcome, 4), VerdictKind::kCompileError);
  const std::string log = outcome.trials[4].verdict.evidence["log"];
  EXPECT_NE(log.find("expected ';'"), std::string::npos);
  EXPECT_LT(log.size(), 5000u);
  EXPECT_EQ(KindOf(outcome, 5), VerdictKind::kTooSlow);
  EXPECT_EQ(KindOf(outcome, 6), VerdictKind::kMemoryFault);
  EXPECT_EQ(outcome.trials[2].resources, (Json{{"k", {{"registers", 8}}}}));
  EXPECT_TRUE(outcome.trials[4].resources.empty());
  EXPECT_EQ(outcome.best->verification["cases"].size(), 4u);
  EXPECT_EQ(outcome.best->verification["report"], (Json{{"checked", true}}));
}

TEST_F(WalkTest, SearchReceivesAllResults) {
  Run({{.ns = 900}, {.ns = 100, .wrong_case = 3}, {.ns = 950}, {.compiles = false}});
  ASSERT_EQ(told_.size(), 4u);
  EXPECT_TRUE(told_[0].correct);
  EXPECT_EQ(told_[0].ns, 900);
  EXPECT_TRUE(told_[1].correct) << "so far: on the first set";
  EXPECT_EQ(told_[1].ns, 100);
  EXPECT_TRUE(told_[2].correct);
  EXPECT_EQ(told_[2].ns, 950);
  EXPECT_FALSE(told_[3].correct);
}

TEST_F(WalkTest, ScreensOnOneSetAndProvesTheFastest) {
  Run({{.ns = 900}, {.ns = 800}, {.ns = 950}});
  EXPECT_EQ(runner_->runs,
            (std::vector<std::string>{"set0", "set0", "set0", "set0", "set1", "set2", "set3"}));
  EXPECT_EQ(runner_->abandon_ns, (std::vector<double>{INFINITY, 1800, 1600}));
}

TEST_F(WalkTest, NextFastestWinsIfTheFastestFailsAProof) {
  auto outcome =
      Run({{.ns = 100, .wrong_case = 2}, {.ns = 400}, {.ns = 200, .wrong_case = 1}, {.ns = 300}});
  ASSERT_TRUE(outcome.best.has_value());
  EXPECT_EQ(outcome.best->candidate.source.code, "3");
  EXPECT_EQ(SetOf(outcome, 0), "set2");
  EXPECT_EQ(KindOf(outcome, 1), VerdictKind::kTooSlow);
  EXPECT_EQ(SetOf(outcome, 2), "set1");
  EXPECT_EQ(KindOf(outcome, 3), VerdictKind::kAccepted);
  ASSERT_EQ(events_.size(), 7u);
  EXPECT_EQ(events_[4]["event"], "verified");
  EXPECT_EQ(events_[4]["index"], 0);
  EXPECT_EQ(events_[4]["verdict"], "wrong_values");
  EXPECT_EQ(events_[6]["index"], 3);
  EXPECT_EQ(events_[6]["verdict"], "accepted");
}

TEST_F(WalkTest, ProvesAtMostFour) {
  std::vector<Row> rows(6, Row{.ns = 100, .wrong_case = 3});
  rows[5] = {.ns = 200};
  auto outcome = Run(rows);
  EXPECT_FALSE(outcome.best.has_value());
  EXPECT_TRUE(outcome.reason.starts_with(
      "no candidate was right: tried every candidate; the fastest: output 0 is wrong (input set "))
      << outcome.reason;
  EXPECT_TRUE(outcome.reason.ends_with(" (input set set3)")) << outcome.reason;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(KindOf(outcome, i), VerdictKind::kWrongValues);
  }
  EXPECT_EQ(KindOf(outcome, 4), VerdictKind::kNotJudged);
  EXPECT_EQ(KindOf(outcome, 5), VerdictKind::kNotJudged);
}

TEST_F(WalkTest, ProgressReportsEachCandidate) {
  Run({{.ns = 900}, {.compiles = false}});
  ASSERT_EQ(events_.size(), 3u);
  EXPECT_EQ(events_[0]["event"], "candidate");
  EXPECT_EQ(events_[0]["verdict"], "accepted");
  EXPECT_EQ(events_[0]["ns"], 900.0);
  EXPECT_EQ(events_[0]["best"], true);
  EXPECT_EQ(events_[1]["verdict"], "compile_error");
  EXPECT_FALSE(events_[1].contains("ns"));
  EXPECT_EQ(events_[2]["event"], "verified");
}

TEST_F(WalkTest, ReasonWithoutACorrectCandidate) {
  auto outcome = Run({{.compiles = false}, {.wrong_case = 0}});
  EXPECT_FALSE(outcome.best.has_value());
  EXPECT_EQ(outcome.reason,
            "no candidate was right: tried every candidate; the first: does not compile");
  EXPECT_EQ(outcome.trials.size(), 2u);
}

TEST_F(WalkTest, BudgetOfCandidatesAndPatience) {
  budget_.candidates = 5;
  EXPECT_EQ(Run(std::vector<Row>(50)).trials.size(), 5u);
  budget_ = {.seconds = 30, .candidates = 64, .patience = 3};
  auto outcome = Run({{.ns = 10}, {.ns = 9}, {.ns = 20}, {.ns = 20}, {.ns = 20}, {.ns = 1}});
  EXPECT_EQ(outcome.trials.size(), 5u);
  EXPECT_EQ(outcome.best->ns, 9);
}

TEST_F(WalkTest, TriesOneCandidateWithoutTime) {
  budget_.seconds = 0;
  auto outcome = Run({{.ns = 10}, {.ns = 5}});
  ASSERT_TRUE(outcome.best.has_value());
  EXPECT_EQ(outcome.best->ns, 10);
  EXPECT_EQ(runner_->compiles, 1);
  EXPECT_TRUE(outcome.out_of_time);
  EXPECT_NE(outcome.reason.find("time"), std::string::npos);

  auto wrong = Run({{.wrong_case = 0}, {.ns = 5}});
  EXPECT_FALSE(wrong.best.has_value());
  EXPECT_EQ(wrong.trials.size(), 1u);
  EXPECT_TRUE(wrong.out_of_time);
}

// Sleeps in every compilation, so that the time runs out during a candidate.
class SlowRunner : public TableRunner {
 public:
  using TableRunner::TableRunner;
  Result<CompileResult> Compile(const Candidate& candidate) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    return TableRunner::Compile(candidate);
  }
};

TEST_F(WalkTest, TimeRunsOutBetweenTwoSteps) {
  SlowRunner runner(std::vector<Row>(100));
  budget_.seconds = 0.1;
  auto outcome = Search(std::make_unique<TableSearch>(100), runner);
  ASSERT_TRUE(outcome.ok());
  EXPECT_LT(runner.compiles, 5);
  EXPECT_NE(outcome->reason.find("time for this region is spent"), std::string::npos);
}

// Sleeps in every run: a verification takes four of them.
class SlowRuns : public TableRunner {
 public:
  using TableRunner::TableRunner;
  Result<Verdict> Run(size_t set) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return TableRunner::Run(set);
  }
};

TEST_F(WalkTest, ReservesTimeForTheProof) {
  SlowRuns runner(std::vector<Row>(100));
  budget_.seconds = 2;
  budget_.patience = 100;
  auto outcome = Search(std::make_unique<TableSearch>(100), runner);
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->best.has_value());
  EXPECT_NE(outcome->reason.find("time for this region is spent"), std::string::npos);
  EXPECT_LT(outcome->trials.size(), 38u) << "2 s hold 40 runs, 4 of them for the verification";
}

TEST_F(WalkTest, ProvesOneWithoutTime) {
  SlowRuns runner({{.ns = 10}, {.ns = 5}, {.ns = 1}});
  budget_.seconds = 0.04;
  auto outcome = Search(std::make_unique<TableSearch>(3), runner);
  ASSERT_TRUE(outcome.ok());
  ASSERT_TRUE(outcome->best.has_value());
  EXPECT_EQ(outcome->best->ns, 10);
  EXPECT_EQ(outcome->trials.size(), 1u);
  EXPECT_EQ(runner.runs.size(), 5u);
}

TEST_F(WalkTest, WorkerFault) {
  TableRunner runner(std::vector<Row>(9));
  runner.fault = Status::Unavailable("no worker");
  EXPECT_EQ(Search(std::make_unique<TableSearch>(9), runner).status().code(),
            StatusCode::kUnavailable);
  // With a best candidate, the fault only ends the search.
  TableRunner later(std::vector<Row>(9));
  later.fail_timing_after = 1;
  auto outcome = Search(std::make_unique<TableSearch>(9), later);
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->best.has_value());
  EXPECT_NE(outcome->reason.find("gone"), std::string::npos);
}

TEST_F(WalkTest, AnIllegalCandidateNeverReachesTheWorker) {
  class Illegal : public TableSearch {
   public:
    using TableSearch::TableSearch;
    std::optional<Candidate> Next() override {
      auto candidate = TableSearch::Next();
      if (candidate.has_value()) candidate->plan.launches[0].grain = 0;
      return candidate;
    }
  };
  TableRunner runner(std::vector<Row>(2));
  auto outcome = Search(std::make_unique<Illegal>(2), runner);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(runner.compiles, 0);
  EXPECT_EQ(KindOf(*outcome, 0), VerdictKind::kRefused);
}

TEST_F(WalkTest, NoStepBeginsBeyondTheLimit) {
  budget_.limit = 0;
  EXPECT_EQ(Run({{.ns = 10}}).trials.size(), 0u);
  EXPECT_EQ(runner_->compiles, 0);

  // A candidate takes 50 ms. The second would end after the limit, and there is no time for a
  // proof.
  SlowRuns runner(std::vector<Row>(9));
  budget_ = {.seconds = 9, .limit = 0.09};
  auto outcome = Search(std::make_unique<TableSearch>(9), runner);
  ASSERT_TRUE(outcome.ok());
  EXPECT_FALSE(outcome->best.has_value());
  EXPECT_TRUE(outcome->out_of_time);
  EXPECT_EQ(runner.runs.size(), 1u);
  EXPECT_EQ(KindOf(*outcome, 0), VerdictKind::kNotJudged);
}

TEST_F(WalkTest, BestIsProvenAfterTheSearch) {
  SlowRuns runner(std::vector<Row>(9));
  budget_ = {.seconds = 0.04, .limit = 9};
  auto outcome = Search(std::make_unique<TableSearch>(9), runner);
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->best.has_value());
  EXPECT_EQ(runner.runs.size(), 5u);
}

TEST_F(WalkTest, TimeoutsAreWithinBounds) {
  EXPECT_EQ(TimeoutMs(30, 60'000), 30'000);
  EXPECT_EQ(TimeoutMs(-1, 60'000), 1);
  for (double large : {90.0, 1e9, 1e300}) EXPECT_EQ(TimeoutMs(large, 60'000), 60'000);
}

}  // namespace
}  // namespace cudaforge
