#include <cmath>

#include "forge/agent/agent_budget.h"
#include "forge/agent/ledger.h"
#include "tests/cpp/forge/agent_fakes.h"

namespace cudaforge {
namespace {

TEST(Ledger, EstimatesGoUp) {
  EXPECT_EQ(EstimateTokens(""), 0);
  EXPECT_EQ(EstimateTokens("abc"), 1);
  EXPECT_EQ(EstimateTokens("abcd"), 2);
  EXPECT_EQ(EstimateInputTokens({{Speaker::kUser, "abcd"}, {Speaker::kUser, ""}}), 34);
}

TEST(Ledger, EntriesSurviveJson) {
  LedgerEntry entry;
  entry.round = 3;
  entry.role = AgentRole::kJudge;
  entry.provider = "openai:x";
  entry.model = "x-2";
  entry.prompt = "judge_repair";
  entry.prompt_sha256 = "ab";
  entry.usage = {10, 4, 2};
  entry.usd = 0.25;
  entry.seconds = 1.5;
  EXPECT_EQ(entry.ToJson()["ok"], true);
  EXPECT_EQ(LedgerEntry::FromJson(entry.ToJson())->ToJson(), entry.ToJson());
  entry.usd.reset();
  entry.estimated = true;
  entry.replayed = true;
  entry.error = "timeout: x";
  EXPECT_TRUE(entry.ToJson()["usd"].is_null());
  EXPECT_FALSE(entry.ToJson().contains("ok"));
  EXPECT_EQ(LedgerEntry::FromJson(entry.ToJson())->ToJson(), entry.ToJson());
  for (const char* field : {"round", "role", "provider", "model", "usage", "seconds"}) {
    Json without = entry.ToJson();
    without.erase(field);
    EXPECT_FALSE(LedgerEntry::FromJson(without).ok()) << field;
  }
}

TEST(Ledger, ImpossibleAmountsAreErrors) {
  LedgerEntry entry;
  entry.usage = {1, std::nullopt, 2};
  for (const char* field : {"usd", "seconds"}) {
    Json json = entry.ToJson();
    for (const Json& good : {Json(0), Json(1e9), Json(0.5)}) {
      json[field] = good;
      EXPECT_TRUE(LedgerEntry::FromJson(json).ok()) << field << good;
    }
    for (const Json& bad : {Json(-1), Json(1.1e9), Json(INFINITY), Json(NAN), Json("1")}) {
      json[field] = bad;
      const Status status = LedgerEntry::FromJson(json).status();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << field << bad;
      EXPECT_TRUE(status.message().starts_with(field)) << status.message();
    }
  }
}

TEST(Ledger, SumsDoNotOverflow) {
  EXPECT_EQ(AddTokens(2, 3), 5);
  EXPECT_EQ(AddTokens(INT64_MAX, 0), INT64_MAX);
  EXPECT_EQ(AddTokens(INT64_MAX - 1, 2), INT64_MAX);
  EXPECT_EQ(AddTokens(INT64_MAX, INT64_MAX), INT64_MAX);
  LedgerEntry entry;
  entry.usage = {INT64_MAX, INT64_MAX, INT64_MAX};
  Ledger ledger;
  ledger.Add(entry);
  ledger.Add(entry);
  EXPECT_EQ(ledger.Sum().input_tokens, INT64_MAX);
  EXPECT_EQ(ledger.Sum().cached_input_tokens, INT64_MAX);
  EXPECT_EQ(ledger.Sum().tokens(), INT64_MAX);
  EXPECT_EQ(ledger.Sum().unpriced, 2);
  // The rest of the budget.
  EXPECT_NE(AllowCall({.tokens = 1}, ledger.Sum(), 0, 1'000'000, nullptr, 500, {}).refusal, "");
}

class AgentLedger : public AgentTest {};

TEST_F(AgentLedger, SumsMatchWhatTheServicesCounted) {
  settings_.prices =
      Prices::Parse(R"({"models": {"coder-1": {"input": 2, "cached_input": 0.5, "output": 10},
                                   "judge-1": {"input": 1, "output": 4}}})")
          .value();
  settings_.budget.rounds = 3;
  Code({TextReply(RowReply(0), {1000, std::nullopt, 200}), TextReply(RowReply(1), {1500, 900, 300}),
        TextReply(RowReply(2), {1600, 1000, 400})});
  JudgeWith({TextReply("nothing", {500, std::nullopt, 10}),
             TextReply(AdviceReply(), {550, std::nullopt, 50}),
             TextReply(AdviceReply(), {600, std::nullopt, 60})});
  const AgentOutcome outcome = Run({{.ns = 500}, {.ns = 400}, {.ns = 300}});
  const LedgerSum coder = outcome.ledger.Sum(AgentRole::kCoder);
  EXPECT_EQ(coder.calls, 3);
  EXPECT_EQ(coder.input_tokens, 4100);
  EXPECT_EQ(coder.cached_input_tokens, 1900);
  EXPECT_EQ(coder.output_tokens, 900);
  EXPECT_DOUBLE_EQ(coder.usd, (2200 * 2 + 1900 * 0.5 + 900 * 10) / 1e6);
  EXPECT_DOUBLE_EQ(coder.seconds, 1.5);
  const LedgerSum judge = outcome.ledger.Sum(AgentRole::kJudge);
  EXPECT_EQ(judge.calls, 3);
  EXPECT_EQ(judge.tokens(), 1770);
  EXPECT_DOUBLE_EQ(judge.usd, (1650 * 1 + 120 * 4) / 1e6);
  const LedgerSum all = outcome.ledger.Sum();
  EXPECT_EQ(all.tokens(), coder.tokens() + judge.tokens());
  EXPECT_EQ(all.estimated + all.unpriced + all.failed, 0);
  EXPECT_EQ(outcome.ledger.ToJson()["by_role"]["judge"]["calls"], 3);
  // The node of each round has its calls.
  std::vector<Json> entries;
  for (const Json& node : sunk_) {
    for (const Json& call : node["calls"]) {
      EXPECT_EQ(call["round"], node["id"]);
      entries.push_back(call);
    }
  }
  ASSERT_EQ(entries.size(), 6u);
  EXPECT_EQ(entries[2]["role"], "judge");
  EXPECT_EQ(entries[2]["usage"], (Json{{"input_tokens", 550}, {"output_tokens", 50}}));
}

TEST_F(AgentLedger, MissingCountsAreEstimatedUpwards) {
  settings_.budget.rounds = 2;
  settings_.limits.max_output_tokens = 7000;
  Code({TextReply(RowReply(0)), Status::Timeout("slow")});
  const AgentOutcome outcome = Run({{.ns = 500}});
  const auto& entries = outcome.ledger.entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_TRUE(entries[0].estimated);
  EXPECT_EQ(entries[0].usage.output_tokens, EstimateTokens(RowReply(0)));
  EXPECT_EQ(entries[0].usage.input_tokens, EstimateInputTokens(coder_->requests[0].messages));
  EXPECT_FALSE(entries[0].usd.has_value());
  EXPECT_TRUE(entries[1].estimated);
  EXPECT_EQ(entries[1].usage.output_tokens, 7000) << "it may have written that much unseen";
  EXPECT_EQ(outcome.ledger.Sum().unpriced, 2);
}

TEST_F(AgentLedger, ReplaySpendsNothingAndEndsAtTheSamePoint) {
  settings_.prices =
      Prices::Parse(R"({"models": {"coder-1": {"input": 2, "output": 10}}})").value();
  settings_.budget.usd = 5;
  settings_.budget.rounds = 6;
  settings_.budget.patience = 6;
  const Reply costly = TextReply(RowReply(0), {1'000'000, std::nullopt, 1});  // two dollars
  LedgerSum sums[2];
  for (const bool replay : {false, true}) {
    Code({6, costly});
    coder_->replay = replay;
    const AgentOutcome outcome = Run({{.ns = 500}});
    const LedgerSum& sum = sums[replay ? 1 : 0] = outcome.ledger.Sum();
    EXPECT_EQ(sum.calls, 3);
    EXPECT_EQ(sum.replayed, replay ? 3 : 0);
    const LedgerEntry& entry = outcome.ledger.entries().at(0);
    EXPECT_EQ(entry.ToJson().contains("replayed"), replay);
    EXPECT_EQ(entry.seconds == 0.5, !replay) << "what it took here, not what it took then";
    EXPECT_EQ(EventsOf("candidate").back()["replayed"], replay ? 1 : 0);
    events_.clear();
  }
  EXPECT_GT(sums[0].usd, 6);
  EXPECT_EQ(sums[0].replayed_usd, 0);
  EXPECT_EQ(sums[1].usd, 0);
  EXPECT_EQ(sums[1].replayed_usd, sums[0].usd);
  EXPECT_EQ(sums[1].tokens(), sums[0].tokens());
  // Without a price nothing is charged.
  settings_.prices = Prices();
  settings_.budget.usd = 0;
  settings_.budget.rounds = 1;
  Code({costly});
  coder_->replay = true;
  EXPECT_EQ(Run({{.ns = 500}}).ledger.Sum().unpriced, 0);
  EXPECT_EQ(EventsOf("candidate").back()["usd"], 0);
}

TEST_F(AgentLedger, UnmeteredFailureHasNoOutput) {
  settings_.budget.rounds = 1;
  Code({Status::Timeout("nobody answered")});
  coder_->metered = false;
  const AgentOutcome outcome = Run({{}});
  const LedgerEntry& entry = outcome.ledger.entries().at(0);
  EXPECT_EQ(entry.usage.output_tokens, 0);
  EXPECT_GT(entry.usage.input_tokens, 0);
}

TEST_F(AgentLedger, ZeroCountOfATextIsEstimated) {
  settings_.budget.rounds = 4;
  Code({TextReply(RowReply(0), {0, 0, 0}), TextReply(RowReply(1), {900, std::nullopt, 0}),
        TextReply(RowReply(2), {0, std::nullopt, 70}), TextReply("", {800, std::nullopt, 0})});
  const AgentOutcome outcome = Run({{.ns = 500}, {.ns = 400}, {.ns = 300}});
  const auto& entries = outcome.ledger.entries();
  ASSERT_EQ(entries.size(), 4u);
  const auto input = [this](size_t i) { return EstimateInputTokens(coder_->requests[i].messages); };
  EXPECT_EQ(entries[0].usage.input_tokens, input(0));
  EXPECT_EQ(entries[0].usage.output_tokens, EstimateTokens(RowReply(0)));
  EXPECT_EQ(entries[1].usage.input_tokens, 900);
  EXPECT_EQ(entries[1].usage.output_tokens, EstimateTokens(RowReply(1)));
  EXPECT_EQ(entries[2].usage.input_tokens, input(2));
  EXPECT_EQ(entries[2].usage.output_tokens, 70);
  EXPECT_EQ(entries[3].usage.output_tokens, 0) << "there was none";
  EXPECT_FALSE(entries[3].estimated);
  EXPECT_EQ(outcome.ledger.Sum().estimated, 3);
}

TEST_F(AgentLedger, ImpossibleCountsAreEstimated) {
  settings_.budget.rounds = 1;
  Code({TextReply(RowReply(0), {INT64_MAX, INT64_MAX, kMostTokens + 1})});
  const AgentOutcome outcome = Run({{.ns = 500}});
  const LedgerEntry& entry = outcome.ledger.entries().at(0);
  EXPECT_TRUE(entry.estimated);
  EXPECT_EQ(entry.usage.input_tokens, EstimateInputTokens(coder_->requests[0].messages));
  EXPECT_EQ(entry.usage.cached_input_tokens, std::nullopt);
  EXPECT_EQ(entry.usage.output_tokens, EstimateTokens(RowReply(0)));
}

TEST_F(AgentLedger, RefusedRequestCostsNothing) {
  for (const Status& fault : {Status::InvalidArgument("bad key"), Status::Unavailable("refused"),
                              Status::NotFound("no more")}) {
    Code({fault});
    const AgentOutcome outcome = Run({{}});
    EXPECT_EQ(outcome.ledger.Sum().calls, 1);
    EXPECT_EQ(outcome.ledger.Sum().tokens(), 0) << fault.ToString();
    EXPECT_EQ(outcome.ledger.Sum().estimated, 0);
  }
}

TEST(AgentBudgetRules, WithoutLimitsACallGetsTheRequestedAmount) {
  ReplyLimits wanted;
  wanted.max_output_tokens = 100;
  const Allowance allowance = AllowCall({}, {}, 0, 1'000'000'000, nullptr, 1024, wanted);
  EXPECT_EQ(allowance.refusal, "");
  EXPECT_EQ(allowance.limits.max_output_tokens, 100);
  EXPECT_EQ(allowance.limits.total_s, wanted.total_s);
}

TEST(AgentBudgetRules, BothLimitsHold) {
  AgentBudget budget;
  budget.tokens = 10'000;
  budget.usd = 0.01;
  LedgerSum spent;
  spent.input_tokens = 3000;
  spent.output_tokens = 1000;
  spent.usd = 0.004;
  const Price price{"*", 1, 1, 2};
  const auto most = [&](int64_t input) {
    const Allowance allowance = AllowCall(budget, spent, 0, input, &price, 500, {});
    return allowance.refusal.empty() ? allowance.limits.max_output_tokens : -1;
  };
  EXPECT_EQ(most(1000), 2500) << "0.006 dollars are left, 0.001 of them for the input";
  budget.usd = 1;
  EXPECT_EQ(most(1000), 5000);
  EXPECT_EQ(most(5500), 500);
  EXPECT_EQ(most(5501), -1);
  const Price free_output{"*", 1, 1, 0};
  EXPECT_EQ(AllowCall(budget, spent, 0, 10, &free_output, 500, {}).refusal, "");
  EXPECT_NE(AllowCall(budget, spent, 0, 10, nullptr, 500, {}).refusal, "");
  EXPECT_NE(AllowCall({.seconds = 5}, {}, 5, 10, nullptr, 500, {}).refusal, "");
}

}  // namespace
}  // namespace cudaforge
