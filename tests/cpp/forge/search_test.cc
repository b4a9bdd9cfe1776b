#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "tests/cpp/forge/fakes.h"

namespace cudaforge {
namespace {

class Forge : public testing::Test {
 protected:
  SearchOutcome Run(std::vector<Row> rows) {
    runner_.emplace(rows);
    search_.emplace(rows.size());
    auto outcome = SearchRegion(signature_, *search_, *runner_, checker_, budget_,
                                [&](const Json& event) { events_.push_back(event); });
    EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
    return std::move(outcome).value();
  }
  static std::string VerdictOf(const SearchOutcome& outcome, size_t i) {
    return outcome.lineage.at(i)["verdict"].dump();
  }

  OpSignature signature_ = ReluOfEight();
  TableChecker checker_{4};
  ForgeBudget budget_;
  std::optional<TableRunner> runner_;
  std::optional<TableSearch> search_;
  std::vector<Json> events_;
};

TEST_F(Forge, TheFastestRightOneIsBest) {
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
  EXPECT_EQ(outcome.best->worker_ns, 500);
  ASSERT_EQ(outcome.lineage.size(), 7u);
  EXPECT_NE(VerdictOf(outcome, 1).find("wrong_values"), std::string::npos);
  EXPECT_NE(VerdictOf(outcome, 1).find("set3"), std::string::npos);
  EXPECT_NE(VerdictOf(outcome, 4).find("compile_error"), std::string::npos);
  EXPECT_NE(VerdictOf(outcome, 4).find("expected ';'"), std::string::npos);
  EXPECT_LT(VerdictOf(outcome, 4).size(), 5000u);
  EXPECT_NE(VerdictOf(outcome, 5).find("too_slow"), std::string::npos);
  EXPECT_NE(VerdictOf(outcome, 6).find("memory_fault"), std::string::npos);
  EXPECT_EQ(outcome.lineage[2]["resources"], (Json{{"k", {{"registers", 8}}}}));
  EXPECT_FALSE(outcome.lineage[4].contains("resources"));
  EXPECT_EQ(outcome.verification["cases"].size(), 4u);
  EXPECT_EQ(outcome.verification["report"], (Json{{"checked", true}}));
}

TEST_F(Forge, TheSearchIsToldWhatBecameOfEach) {
  Run({{.ns = 900}, {.ns = 100, .wrong_case = 3}, {.ns = 950}, {.compiles = false}});
  ASSERT_EQ(search_->told.size(), 4u);
  EXPECT_TRUE(search_->told[0].correct);
  EXPECT_EQ(search_->told[0].ns, 900);
  EXPECT_TRUE(search_->told[1].correct) << "so far: on the first set";
  EXPECT_EQ(search_->told[1].ns, 100);
  EXPECT_TRUE(search_->told[2].correct);
  EXPECT_EQ(search_->told[2].ns, 950);
  EXPECT_FALSE(search_->told[3].correct);
}

TEST_F(Forge, OneRunEachAndEverySetForTheFastest) {
  Run({{.ns = 900}, {.ns = 800}, {.ns = 950}});
  EXPECT_EQ(runner_->runs, (std::vector<std::string>{"set0 255", "set0 255", "set0 255", "set0 43",
                                                     "set1 255", "set2 43", "set3 255"}));
  EXPECT_EQ(runner_->abandon_ns, (std::vector<double>{INFINITY, 1800, 1600}));
}

TEST_F(Forge, WhenTheFastestIsWrongOnALaterSetTheNextFastestWins) {
  auto outcome =
      Run({{.ns = 100, .wrong_case = 2}, {.ns = 400}, {.ns = 200, .wrong_case = 1}, {.ns = 300}});
  ASSERT_TRUE(outcome.best.has_value());
  EXPECT_EQ(outcome.best->candidate.source.code, "3");
  EXPECT_NE(VerdictOf(outcome, 0).find("set2"), std::string::npos);
  EXPECT_NE(VerdictOf(outcome, 1).find("too_slow"), std::string::npos);
  EXPECT_NE(VerdictOf(outcome, 2).find("set1"), std::string::npos);
  EXPECT_NE(VerdictOf(outcome, 3).find("accepted"), std::string::npos);
  ASSERT_EQ(events_.size(), 7u);
  EXPECT_EQ(events_[4]["event"], "verified");
  EXPECT_EQ(events_[4]["index"], 0);
  EXPECT_EQ(events_[4]["verdict"], "wrong_values");
  EXPECT_EQ(events_[6]["index"], 3);
  EXPECT_EQ(events_[6]["verdict"], "accepted");
}

TEST_F(Forge, FourAreVerifiedAtMost) {
  std::vector<Row> rows(6, Row{.ns = 100, .wrong_case = 3});
  rows[5] = {.ns = 200};
  auto outcome = Run(rows);
  EXPECT_FALSE(outcome.best.has_value());
  EXPECT_TRUE(outcome.reason.starts_with(
      "no candidate was right: tried every candidate; the fastest: output 0 is wrong (input set "))
      << outcome.reason;
  EXPECT_TRUE(outcome.reason.ends_with(" (input set " + checker_.inputs(3).name + ")"))
      << outcome.reason;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NE(VerdictOf(outcome, i).find("wrong_values"), std::string::npos);
  }
  EXPECT_NE(VerdictOf(outcome, 4).find("not_judged"), std::string::npos);
  EXPECT_NE(VerdictOf(outcome, 5).find("not_judged"), std::string::npos);
}

TEST_F(Forge, ProgressTellsOfEachCandidate) {
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

TEST_F(Forge, NothingRightGivesAReason) {
  auto outcome = Run({{.compiles = false}, {.wrong_case = 0}});
  EXPECT_FALSE(outcome.best.has_value());
  EXPECT_EQ(outcome.reason,
            "no candidate was right: tried every candidate; the first: does not compile");
  EXPECT_EQ(outcome.lineage.size(), 2u);
}

TEST_F(Forge, BudgetOfCandidatesAndPatience) {
  budget_.candidates = 5;
  EXPECT_EQ(Run(std::vector<Row>(50)).lineage.size(), 5u);
  budget_ = {.seconds = 30, .candidates = 64, .patience = 3};
  auto outcome = Run({{.ns = 10}, {.ns = 9}, {.ns = 20}, {.ns = 20}, {.ns = 20}, {.ns = 1}});
  EXPECT_EQ(outcome.lineage.size(), 5u);
  EXPECT_EQ(outcome.best->worker_ns, 9);
}

TEST_F(Forge, OneIsTriedHoweverLittleTimeThereIs) {
  budget_.seconds = 0;
  auto outcome = Run({{.ns = 10}, {.ns = 5}});
  ASSERT_TRUE(outcome.best.has_value());
  EXPECT_EQ(outcome.best->worker_ns, 10);
  EXPECT_EQ(runner_->compiles, 1);
  EXPECT_TRUE(outcome.out_of_time);
  EXPECT_NE(outcome.reason.find("time"), std::string::npos);

  auto wrong = Run({{.wrong_case = 0}, {.ns = 5}});
  EXPECT_FALSE(wrong.best.has_value());
  EXPECT_EQ(wrong.lineage.size(), 1u);
  EXPECT_TRUE(wrong.out_of_time);
}

// Sleeps in every compile: the time runs out while a candidate is under way.
class SlowRunner : public TableRunner {
 public:
  using TableRunner::TableRunner;
  Result<CompileResult> Compile(const Candidate& candidate) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    return TableRunner::Compile(candidate);
  }
};

TEST_F(Forge, TimeRunsOutBetweenTwoSteps) {
  SlowRunner runner(std::vector<Row>(100));
  TableSearch search(100);
  budget_.seconds = 0.1;
  auto outcome = SearchRegion(signature_, search, runner, checker_, budget_, nullptr);
  ASSERT_TRUE(outcome.ok());
  EXPECT_LT(runner.compiles, 5);
  EXPECT_NE(outcome->reason.find("time for this region is spent"), std::string::npos);
}

// Sleeps in every run: a verification takes four of them.
class SlowRuns : public TableRunner {
 public:
  using TableRunner::TableRunner;
  Result<RunOutput> Run(const std::string& binary, const Candidate& candidate,
                        const OpSignature& signature, const InputSet& inputs,
                        const RunPlan& plan) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return TableRunner::Run(binary, candidate, signature, inputs, plan);
  }
};

TEST_F(Forge, TimeToVerifyIsKeptInReserve) {
  SlowRuns runner(std::vector<Row>(100));
  TableSearch search(100);
  budget_.seconds = 2;
  budget_.patience = 100;
  auto outcome = SearchRegion(signature_, search, runner, checker_, budget_, nullptr);
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->best.has_value());
  EXPECT_NE(outcome->reason.find("time for this region is spent"), std::string::npos);
  EXPECT_LT(outcome->lineage.size(), 38u) << "2 s hold 40 runs, 4 of them for the verification";
}

TEST_F(Forge, OneIsVerifiedWhateverItTakes) {
  SlowRuns runner({{.ns = 10}, {.ns = 5}, {.ns = 1}});
  TableSearch search(3);
  budget_.seconds = 0.04;
  auto outcome = SearchRegion(signature_, search, runner, checker_, budget_, nullptr);
  ASSERT_TRUE(outcome.ok());
  ASSERT_TRUE(outcome->best.has_value());
  EXPECT_EQ(outcome->best->worker_ns, 10);
  EXPECT_EQ(outcome->lineage.size(), 1u);
  EXPECT_EQ(runner.runs.size(), 5u);
}

TEST_F(Forge, TheWorkersFault) {
  TableRunner runner(std::vector<Row>(9));
  runner.fault = Status::Unavailable("no worker");
  TableSearch search(9);
  EXPECT_EQ(SearchRegion(signature_, search, runner, checker_, budget_, nullptr).status().code(),
            StatusCode::kUnavailable);
  // With a best in hand the fault only ends the search.
  TableRunner later(std::vector<Row>(9));
  later.fail_timing_after = 1;
  TableSearch again(9);
  auto outcome = SearchRegion(signature_, again, later, checker_, budget_, nullptr);
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->best.has_value());
  EXPECT_NE(outcome->reason.find("gone"), std::string::npos);
}

TEST_F(Forge, AnIllegalCandidateNeverReachesTheWorker) {
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
  Illegal search(2);
  auto outcome = SearchRegion(signature_, search, runner, checker_, budget_, nullptr);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(runner.compiles, 0);
  EXPECT_NE(VerdictOf(*outcome, 0).find("refused"), std::string::npos);
}

TEST_F(Forge, NothingBeginsThatCannotEndWithinTheLimit) {
  budget_.limit = 0;
  EXPECT_EQ(Run({{.ns = 10}}).lineage.size(), 0u);
  EXPECT_EQ(runner_->compiles, 0);

  // A try takes 50 ms. The second would end after the limit, nor is there time for a verification.
  SlowRuns runner(std::vector<Row>(9));
  TableSearch search(9);
  budget_ = {.seconds = 9, .limit = 0.09};
  auto outcome = SearchRegion(signature_, search, runner, checker_, budget_, nullptr);
  ASSERT_TRUE(outcome.ok());
  EXPECT_FALSE(outcome->best.has_value());
  EXPECT_TRUE(outcome->out_of_time);
  EXPECT_EQ(runner.runs.size(), 1u);
  EXPECT_NE(VerdictOf(*outcome, 0).find("not_judged"), std::string::npos);
}

TEST_F(Forge, TheBestMayBeVerifiedAfterTheSearchHasEnded) {
  SlowRuns runner(std::vector<Row>(9));
  TableSearch search(9);
  budget_ = {.seconds = 0.04, .limit = 9};
  auto outcome = SearchRegion(signature_, search, runner, checker_, budget_, nullptr);
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->best.has_value());
  EXPECT_EQ(runner.runs.size(), 5u);
}

TEST_F(Forge, TimeoutsAreWithinBounds) {
  EXPECT_EQ(TimeoutMs(30, 60'000), 30'000);
  EXPECT_EQ(TimeoutMs(-1, 60'000), 1);
  for (double large : {90.0, 1e9, 1e300}) EXPECT_EQ(TimeoutMs(large, 60'000), 60'000);
}

}  // namespace
}  // namespace cudaforge
