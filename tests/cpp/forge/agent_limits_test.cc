// The end of a session: budgets at their limits, cancellation, the roofline.
#include "tests/cpp/forge/agent_fakes.h"

namespace cudaforge {
namespace {

class AgentLimits : public AgentTest {
 protected:
  // The estimated input tokens of the first call.
  int64_t FirstInput() {
    CodeRows({0});
    settings_.budget.rounds = 1;
    Run({{.ns = 500}});
    settings_.budget.rounds = 4;
    sunk_.clear();
    events_.clear();
    return EstimateInputTokens(coder_->requests.at(0).messages);
  }
};

TEST_F(AgentLimits, TokensAtTheEdge) {
  const int64_t input = FirstInput();
  settings_.limits.max_output_tokens = 5000;
  struct Case {
    int64_t tokens;
    int64_t output;  // allowed output; 0: no call
  };
  for (const Case& c : {Case{input + 5000, 5000}, Case{input + 4999, 4999},
                        Case{input + 1024, 1024}, Case{input + 1023, 0}, Case{1, 0}}) {
    settings_.budget.tokens = c.tokens;
    CodeRows({0});
    settings_.budget.rounds = 1;
    const AgentOutcome outcome = Run({{.ns = 500}});
    EXPECT_EQ(coder_->requests.size(), c.output > 0 ? 1u : 0u) << c.tokens;
    if (c.output > 0) {
      EXPECT_EQ(coder_->requests[0].limits.max_output_tokens, c.output);
    } else {
      EXPECT_NE(outcome.search.reason.find("the tokens of the budget are spent"), std::string::npos)
          << outcome.search.reason;
    }
    EXPECT_LE(outcome.ledger.Sum().tokens(), c.tokens);
  }
}

TEST_F(AgentLimits, DollarsAtTheEdge) {
  const int64_t input = FirstInput();
  settings_.limits.max_output_tokens = 5000;
  settings_.prices = Prices::Parse(R"({"models": {"coder-1": {"input": 2, "cached_input": 1,
                                       "output": 10}}})")
                         .value();
  const auto dollars = [input](int64_t output) {
    return (static_cast<double>(input) * 2 + static_cast<double>(output) * 10) / 1e6;
  };
  struct Case {
    double usd;
    int64_t output;
  };
  for (const Case& c : {Case{dollars(5000), 5000}, Case{dollars(4999), 4999},
                        Case{dollars(1024), 1024}, Case{dollars(1024) - 1e-6, 0}, Case{1e-9, 0}}) {
    settings_.budget.usd = c.usd;
    CodeRows({0});
    settings_.budget.rounds = 1;
    const AgentOutcome outcome = Run({{.ns = 500}});
    ASSERT_EQ(coder_->requests.size(), c.output > 0 ? 1u : 0u) << c.usd;
    if (c.output > 0) {
      EXPECT_EQ(coder_->requests[0].limits.max_output_tokens, c.output);
    } else {
      EXPECT_NE(outcome.search.reason.find("the dollars of the budget are spent"),
                std::string::npos);
    }
    EXPECT_LE(outcome.ledger.Sum().usd, c.usd);
  }
}

TEST_F(AgentLimits, SpendingCountsBeforeTheNextCall) {
  const int64_t input = FirstInput();
  settings_.budget.tokens = 2 * input + 30'000;
  settings_.limits.max_output_tokens = 20'000;
  // The service counts all allowed tokens: too few are left for the second call's kernel.
  Code({TextReply(RowReply(0), {input, std::nullopt, input + 29'500}), TextReply(RowReply(1))});
  const AgentOutcome outcome = Run({{.ns = 500}, {.ns = 400}});
  EXPECT_EQ(coder_->requests.size(), 1u);
  EXPECT_NE(outcome.search.reason.find("the tokens of the budget"), std::string::npos);
  EXPECT_TRUE(outcome.search.best.has_value());
}

TEST_F(AgentLimits, TokenLimitHoldsForAnyCounts) {
  const int64_t input = FirstInput();
  settings_.limits.max_output_tokens = 1024;
  for (const Usage& counts : {Usage{0, 0, 0}, Usage{INT64_MAX, INT64_MAX, INT64_MAX},
                              Usage{INT64_MAX / 2 + 1, 0, INT64_MAX / 2 + 1}, Usage{-1, -1, -1}}) {
    // Enough for the first call; the second's input alone exceeds the rest.
    settings_.budget.tokens = input + 1024 + input / 2;
    Code({TextReply(RowReply(0), counts), TextReply(RowReply(1), counts),
          TextReply(RowReply(2), counts)});
    const AgentOutcome outcome = Run({{.ns = 500}, {.ns = 400}, {.ns = 300}});
    EXPECT_EQ(coder_->requests.size(), 1u);
    EXPECT_NE(outcome.search.reason.find("the tokens of the budget"), std::string::npos);
    EXPECT_GE(outcome.ledger.Sum().tokens(), input);
    EXPECT_LE(outcome.ledger.Sum().tokens(), settings_.budget.tokens);
  }
}

TEST_F(AgentLimits, JudgeIsSkippedWithoutBudget) {
  const int64_t input = FirstInput();
  settings_.limits.max_output_tokens = 2000;
  settings_.budget.tokens = input + 2000;
  JudgeWith({TextReply(AdviceReply())});
  Code({TextReply(RowReply(0), {input, std::nullopt, 1990}), TextReply(RowReply(1))});
  Run({{.ns = 500}, {.ns = 400}});
  EXPECT_TRUE(judge_->requests.empty());
  EXPECT_EQ(Column("verdict"), "accepted");
}

TEST_F(AgentLimits, SecondsEndCallsAndTheSession) {
  double now = 100;
  settings_.clock = [&now] { return now; };
  settings_.budget.seconds = 50;
  settings_.limits.total_s = 40;
  CodeRows({0, 1, 2, 3});
  coder_->on_call = [&now] { now += 20; };
  const AgentOutcome outcome = Run({{.ns = 500}, {.ns = 400}, {.ns = 300}, {.ns = 200}});
  ASSERT_EQ(coder_->requests.size(), 3u);
  EXPECT_EQ(coder_->requests[0].limits.total_s, 40);
  EXPECT_EQ(coder_->requests[1].limits.total_s, 30);
  EXPECT_EQ(coder_->requests[2].limits.total_s, 10);
  EXPECT_EQ(outcome.search.reason, "the time of the budget is spent");
  EXPECT_EQ(outcome.search.best->ns, 300) << "the candidate under test is finished";
  EXPECT_EQ(Column("seconds"), "20.0 20.0 20.0");
}

TEST(AllowCall, SecondsAtTheEdge) {
  const AgentBudget budget{.seconds = 50};
  const ReplyLimits wanted{.total_s = 40};
  EXPECT_EQ(AllowCall(budget, {}, 49.75, 10, nullptr, 1, wanted).limits.total_s, 0.25);
  EXPECT_EQ(AllowCall(budget, {}, 49.75, 10, nullptr, 1, wanted).refusal, "");
  for (const double spent : {50.0, 50.25}) {
    EXPECT_EQ(AllowCall(budget, {}, spent, 10, nullptr, 1, wanted).refusal,
              "the time of the budget is spent");
  }
}

TEST_F(AgentLimits, CallCutByTheTimeLimitIsNoFault) {
  double now = 0;
  settings_.clock = [&now] { return now; };
  settings_.budget.seconds = 50;
  Code({Status::Timeout("over")});
  coder_->on_call = [&now] { now += 50; };
  EXPECT_NE(Run({{}}).search.reason.find("the time of the budget is spent"), std::string::npos);
}

TEST_F(AgentLimits, PatienceCountsRoundsWithoutGain) {
  settings_.budget = {.rounds = 20, .patience = 3};
  CodeRows({0, 1, 2, 3, 4, 5, 6, 7});
  // 0.5% faster is noise: it becomes the best, but is no gain.
  const AgentOutcome outcome = Run({{.ns = 1000},
                                    {.ns = 1100},
                                    {.compiles = false},
                                    {.ns = 900},
                                    {.ns = 895.5},
                                    {.ns = 950},
                                    {.ns = 960},
                                    {.ns = 1}});
  EXPECT_EQ(sunk_.size(), 7u);
  EXPECT_EQ(outcome.search.reason, "no gain in 3 rounds");
  EXPECT_EQ(outcome.search.best->ns, 895.5);
}

TEST_F(AgentLimits, RooflineEndsTheSession) {
  // 64 bytes at 1 GB/s take 64 ns.
  prepare_ = [](CountingRunner& runner) { runner.facts = {{"bandwidth_gb_s", 1.0}}; };
  CodeRows({0, 1, 2});
  const AgentOutcome outcome = Run({{.ns = 80}, {.ns = 67}, {.ns = 66}});
  EXPECT_EQ(sunk_.size(), 2u);
  EXPECT_EQ(outcome.search.reason, "the best kernel runs at 95.5% of what the device allows");
}

TEST_F(AgentLimits, SurpassedFloorDoesNotEndTheSession) {
  prepare_ = [](CountingRunner& runner) { runner.facts = {{"bandwidth_gb_s", 1.0}}; };
  CodeRows({0, 1});
  settings_.budget.rounds = 2;
  const AgentOutcome outcome = Run({{.ns = 20}, {.ns = 19}});
  EXPECT_EQ(sunk_.size(), 2u);
  EXPECT_EQ(outcome.search.best->ns, 19);
}

TEST_F(AgentLimits, CancelledDuringACall) {
  Cancel cancel;
  settings_.cancel = &cancel;
  CodeRows({0, 1});
  coder_->on_call = [&] {
    if (coder_->requests.size() == 2) cancel.Set();
  };
  const AgentOutcome outcome = Run({{.ns = 500}, {.ns = 400}});
  EXPECT_EQ(outcome.search.reason, "cancelled");
  EXPECT_EQ(outcome.search.best->ns, 500);
  EXPECT_EQ(Column("answered"), "null false");
  EXPECT_EQ(sunk_[1]["calls"].size(), 1u) << "it may have cost something";
  EXPECT_EQ(sunk_[1]["calls"][0]["estimated"], true);
}

TEST_F(AgentLimits, CancelledWhileACandidateRuns) {
  Cancel cancel;
  settings_.cancel = &cancel;
  CodeRows({0, 1});
  int runs = 0;
  prepare_ = [&](CountingRunner& runner) {
    runner.on_run = [&] {
      if (++runs == 5) cancel.Set();  // the first run of the second candidate
    };
  };
  const AgentOutcome outcome = Run({{.ns = 500}, {.ns = 400}});
  EXPECT_EQ(outcome.search.reason, "cancelled");
  EXPECT_EQ(outcome.search.best->ns, 500);
  EXPECT_EQ(runs, 5);
  ASSERT_EQ(sunk_.size(), 2u);
  EXPECT_EQ(sunk_[1]["evaluated"], false);
  EXPECT_EQ(sunk_[1]["source"], "1\n");
  EXPECT_EQ(sunk_[1]["verdict"]["verdict"], "not_judged");
}

TEST_F(AgentLimits, CancelledBeforeAnything) {
  Cancel cancel;
  cancel.Set();
  settings_.cancel = &cancel;
  settings_.start = StartCandidate(0);
  CodeRows({0});
  EXPECT_EQ(Run({{}}).search.reason, "cancelled");
  EXPECT_TRUE(coder_->requests.empty());
  EXPECT_TRUE(sunk_.empty());
}

// A worker in an endless run is stopped too.
TEST(AgentCancel, StopsTheWorker) {
  if (!MakeCpuTarget().ok()) GTEST_SKIP() << "needs a host compiler";
  Cancel cancel;
  WorkerOptions options;
  options.executable = std::string(CUDAFORGE_BINARY_DIR) + "/cudaforge-worker";
  options.cancel = &cancel;
  WorkerClient worker(options);
  Candidate candidate = *TableSearch(1).Next();
  candidate.source.code =
      "#include <cstdint>\n"
      "extern \"C\" void k(void* const*, const int64_t*, const double*, int64_t, int64_t) {\n"
      "  for (volatile int64_t i = 0;; i = i + 1) {}\n}\n";
  const auto compiled = worker.Compile(candidate);
  ASSERT_TRUE(compiled.ok() && compiled->ok);
  ASSERT_TRUE(worker.Load(compiled->binary, candidate, ReluOfEight()).value().verdict.accepted());
  cancel.Set();
  const auto run = worker.Launch({});
  EXPECT_EQ(run.status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace cudaforge
