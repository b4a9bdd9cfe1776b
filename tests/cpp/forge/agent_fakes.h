// Scripted agents, and a session over the tables of fakes.h. A Coder's source is the number of the
// row with its result.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/kernel_store.h"
#include "forge/agent/agents.h"
#include "forge/trial.h"
#include "tests/cpp/forge/fakes.h"

namespace cudaforge {

inline Reply TextReply(std::string content, Usage usage = {}) {
  Reply reply;
  reply.content = std::move(content);
  reply.usage = usage;
  reply.seconds = 0.5;
  return reply;
}

// The Coder's reply to run row `row`.
inline std::string RowReply(size_t row) {
  return "Here it is.\n```json\n"
         "{\"launches\": [{\"kernel\": \"k\", \"args\": [], \"range\": \"8\"}]}\n"
         "```\n```cpp\n" +
         std::to_string(row) + "\n```\n";
}

inline std::string AdviceReply(const std::string& plan = "use wider loads") {
  return Json{{"issue", "too many loads"}, {"plan", plan}}.dump();
}

// Returns its replies in order; after the last it is unavailable.
class ScriptedProvider : public Provider {
 public:
  ScriptedProvider(std::string name, std::vector<Result<Reply>> replies)
      : name_(std::move(name)), replies_(replies.begin(), replies.end()) {}

  Result<Reply> Complete(const LlmRequest& request, const Cancel& cancel,
                         const TextSink& on_text) override {
    requests.push_back(request);
    if (on_call) on_call();
    if (cancel.IsSet()) return Status::Cancelled("cancelled");
    if (replies_.empty()) return Status::Unavailable("no more replies");
    Result<Reply> reply = std::move(replies_.front());
    replies_.pop_front();
    if (reply.ok() && on_text) on_text(reply->content);
    return reply;
  }
  std::string name() const override { return name_; }
  bool is_metered() const override { return metered; }
  bool is_replay() const override { return replay; }

  bool metered = true;
  bool replay = false;
  std::vector<LlmRequest> requests;
  std::function<void()> on_call;

 private:
  const std::string name_;
  std::deque<Result<Reply>> replies_;
};

// A runner of a table that counts calls, and has device facts.
class CountingRunner : public TableRunner {
 public:
  explicit CountingRunner(std::vector<Row> rows) : TableRunner(std::move(rows), 3) {}
  Result<Json> Profile(int tier) override {
    tiers.push_back(tier);
    if (!profile_fault.ok()) return profile_fault;
    return Json{{"tier", tier}, {"metrics", {{"loads_of_row_" + loaded.source.code, 77}}}};
  }
  Result<Json> Facts() override { return facts; }
  Result<Verdict> Run(size_t set) override {
    if (on_run) on_run();
    return TableRunner::Run(set);
  }

  std::vector<int> tiers;
  Status profile_fault;
  Json facts = {{"name", "a device"}};
  std::function<void()> on_run;
};

class AgentTest : public testing::Test {
 protected:
  AgentTest() {
    arch_.target = "cpu:test";
    settings_.session = "s1";
    settings_.budget.rounds = 4;
  }

  void Code(std::vector<Result<Reply>> replies) {
    coder_.emplace("openai:coder-1", std::move(replies));
    settings_.coder = &*coder_;
  }
  // One reply for each of `rows`.
  void CodeRows(const std::vector<size_t>& rows) {
    std::vector<Result<Reply>> replies;
    for (const size_t row : rows) replies.emplace_back(TextReply(RowReply(row)));
    Code(std::move(replies));
  }
  void JudgeWith(std::vector<Result<Reply>> replies) {
    judge_.emplace("openai:judge-1", std::move(replies));
    settings_.judge = &*judge_;
  }

  Result<AgentOutcome> TryRun() {
    return RunWith(*runner_, *runner_, [this](const Json& event) { events_.push_back(event); });
  }
  Result<AgentOutcome> RunWith(CandidateRunner& runner, RegionVerifier& verifier,
                               const ForgeProgress& progress) {
    LocalEvaluator evaluator(signature_, runner, verifier);
    EvaluatorSettings given;
    given.metrics = settings_.metrics;
    given.cancel = settings_.cancel;
    evaluator.Begin(given);
    return RunAgents({signature_, arch_}, evaluator, settings_, Sink(), progress);
  }
  NodeSink Sink() {
    return [this](const Json& node) {
      stored_.push_back(node);
      sunk_.push_back(node);
      sunk_ = SettledNodes(sunk_);
    };
  }
  AgentOutcome Run(std::vector<Row> rows) {
    runner_.emplace(std::move(rows));
    if (prepare_) prepare_(*runner_);
    auto outcome = TryRun();
    EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
    return std::move(outcome).value();
  }

  static std::vector<Json> JsonOf(const std::vector<Trial>& trials) {
    std::vector<Json> nodes;
    for (const Trial& trial : trials) nodes.push_back(trial.ToJson());
    return nodes;
  }

  // Field `field` of every node: "seed repair".
  std::string Column(const char* field) const {
    std::string text;
    for (const Json& node : sunk_) {
      const Json& value = std::string_view(field) == "verdict" ? node["verdict"]["verdict"]
                                                               : MemberOrNull(node, field);
      text +=
          (text.empty() ? "" : " ") + (value.is_string() ? value.get<std::string>() : value.dump());
    }
    return text;
  }
  std::vector<Json> EventsOf(const std::string& kind) const {
    std::vector<Json> found;
    for (const Json& event : events_) {
      if (event["event"] == kind) found.push_back(event);
    }
    return found;
  }
  // The whole text of a request.
  static std::string TextOf(const LlmRequest& request) { return ToJson(request.messages).dump(); }

  static Candidate StartCandidate(size_t row) {
    TableSearch search(row + 1);
    Candidate candidate;
    for (size_t i = 0; i <= row; ++i) candidate = *search.Next();
    candidate.author = "generator:rows";
    return candidate;
  }

  OpSignature signature_ = ReluOfEight();
  DeviceArch arch_;
  std::optional<CountingRunner> runner_;
  std::function<void(CountingRunner&)> prepare_;
  std::optional<ScriptedProvider> coder_, judge_;
  AgentSettings settings_;
  std::vector<Json> stored_;  // everything that the sink received
  std::vector<Json> sunk_;    // without nodes that were replaced later
  std::vector<Json> events_;
};

}  // namespace cudaforge
