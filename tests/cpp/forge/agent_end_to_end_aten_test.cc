// A whole session on the CPU: Coder and Judge over HTTP on loopback, the real worker and verifier,
// the lineage in a database. Then the same from the recordings.
#include <gtest/gtest.h>

#include <map>

#include "base/file.h"
#include "base/sha256.h"
#include "cache/kernel_store.h"
#include "forge/agent/agents.h"
#include "forge/promotion.h"
#include "forge/trial.h"
#include "llm/numbered_files.h"
#include "tests/cpp/forge/fakes.h"
#include "tests/cpp/llm/chat_events.h"
#include "tests/cpp/llm/http_server.h"
#include "verify/verifiers.h"

namespace cudaforge {
namespace {

// A reply with a kernel that runs `statements` for each element i of x and y.
std::string KernelReply(const std::string& statements) {
  return "The kernel:\n```json\n"
         R"({"launches": [{"kernel": "relu", "args": [{"in": 0}, {"out": 0}],
             "range": "in0.size0 * in0.size1", "grain": 4096}]})"
         "\n```\n```cpp\n#include <cstdint>\n"
         "extern \"C\" void relu(void* const* b, const int64_t*, const double*, int64_t begin,\n"
         "                     int64_t end) {\n"
         "  const float* x = static_cast<const float*>(b[0]);\n"
         "  float* y = static_cast<float*>(b[1]);\n"
         "  for (int64_t i = begin; i < end; ++i) {\n    " +
         statements + "\n  }\n}\n```\n";
}

const std::vector<std::string>& CoderReplies() {
  static const std::vector<std::string> replies = {
      KernelReply("y[i] = x[i] > 0 ? x[i] : 0.0f"),  // no semicolon
      KernelReply("y[i] = x[i];"),
      KernelReply("volatile float slow = 0;\n    for (int k = 0; k < 500; ++k) slow = slow + 1;\n"
                  "    y[i] = x[i] < 0 ? 0.0f : x[i];"),
      KernelReply("y[i] = x[i] < 0 ? 0.0f : x[i];")};
  return replies;
}

ScriptedServer::Script Serves(const std::string& text, int64_t input, int64_t output) {
  return Says(std::string(kStreamHead) +
              OpenAiStream({text.substr(0, 40), text.substr(std::min<size_t>(40, text.size()))},
                           {{"prompt_tokens", input}, {"completion_tokens", output}}));
}

// Evaluates each candidate once and repeats the result, because prompts hold measurements, which
// vary.
class RememberingEvaluator : public Evaluator {
 public:
  explicit RememberingEvaluator(Evaluator& inner) : inner_(inner) {}
  void Begin(const EvaluatorSettings& settings) override { inner_.Begin(settings); }
  int slots() const override { return 1; }
  void Submit(EvaluationRequest request) override {
    id_ = request.id;
    digest_ = CandidateDigest(request.candidate);
    if (!known_.contains(digest_)) inner_.Submit(std::move(request));
  }
  Evaluated Wait() override {
    auto found = known_.find(digest_);
    if (found == known_.end()) found = known_.emplace(digest_, inner_.Wait().evaluation).first;
    return {id_, found->second};
  }
  Json facts() override { return inner_.facts(); }

 private:
  Evaluator& inner_;
  int id_ = 0;
  std::string digest_;
  std::map<std::string, Result<Evaluation>> known_;
};

std::unique_ptr<Provider> ProviderOf(const std::string& spec, const std::string& url) {
  auto provider = MakeProvider(spec, LocalSettings(url));
  CF_CHECK(provider.ok()) << provider.status().ToString();
  return *std::move(provider);
}

// The fields that two runs of a session must share: all except names, times and costs.
Json Essentials(const Json& node) {
  Json kept = Json::object();
  for (const char* field :
       {"id", "parent", "kind", "language", "source", "plan", "params", "verdict", "ns",
        "resources", "profile", "derived", "advice", "prompts"}) {
    kept[field] = MemberOrNull(node, field);
  }
  for (const Json& call : node["calls"]) kept["usage"].push_back(call["usage"]);
  return kept;
}

// The hashes of the messages of all requests recorded in `folder`.
std::vector<std::string> RecordedHashes(const std::string& folder) {
  std::vector<std::string> hashes;
  const std::vector<std::string> names = ListNumbered(folder, "-exchange.json").value();
  for (const std::string& name : names) {
    const Json exchange = ParseJson(ReadFile(folder + "/" + name).value()).value();
    hashes.push_back(Sha256Hex(CanonicalJson(exchange["request"]["messages"])));
  }
  return hashes;
}

std::vector<std::string> HashesOf(const std::vector<Json>& nodes, const std::string& role) {
  std::vector<std::string> hashes;
  for (const Json& node : nodes) {
    for (const Json& call : node["calls"]) {
      if (call["role"] == role) hashes.push_back(call["prompt_sha256"]);
    }
  }
  return hashes;
}

TEST(AgentEndToEnd, CorrectsThenOptimisesAndReplays) {
  auto target = MakeCpuTarget();
  if (!target.ok()) GTEST_SKIP() << target.status().ToString();
  const OpSignature signature = Relu({64, 512}, {512, 1});
  const std::string programs = CUDAFORGE_BINARY_DIR;
  Verifiers verifiers({.executable = programs + "/cudaforge-verifier",
                       .worker = programs + "/cudaforge-worker",
                       .library_path = "",
                       .cxx = "",
                       .cuda_search_paths = {}});
  const auto opened =
      verifiers.Open(signature, 0, std::numeric_limits<double>::infinity(), nullptr);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  RememberingEvaluator evaluator(**opened);

  std::vector<ScriptedServer::Script> coder_scripts;
  for (const std::string& reply : CoderReplies()) {
    coder_scripts.push_back(Serves(reply, 1000, 200));
  }
  ScriptedServer coder_server(coder_scripts);
  const auto advice = [](const std::string& plan) {
    return Json{{"issue", "one thing"}, {"plan", plan}}.dump();
  };
  ScriptedServer judge_server(
      {Serves("Let me think about it.", 300, 10), Serves(advice("end the statement"), 350, 20),
       Serves(advice("clamp at zero"), 300, 20), Serves(advice("drop the loop"), 300, 20)});

  const TempDir folder = TempDir::Create("cudaforge-agents").value();
  const std::string coder_record = folder.path() + "/coder";
  const std::string judge_record = folder.path() + "/judge";
  const auto coder = ProviderOf("record:" + coder_record + ":openai:coder-1", coder_server.url());
  const auto judge = ProviderOf("record:" + judge_record + ":openai:judge-1", judge_server.url());
  const auto store = OpenRocksKernelStore(folder.path() + "/cache", true).value();

  AgentSettings settings;
  settings.coder = coder.get();
  settings.judge = judge.get();
  settings.session = "end-to-end";
  settings.budget = {.rounds = 4, .seconds = 600, .usd = 1, .patience = 10, .roofline = 0};
  settings.prices = Prices::Parse(R"({"models": {"*": {"input": 1, "output": 10}}})").value();
  std::vector<Json> nodes;
  const Task task = {signature, (*target)->arch()};
  EvaluatorSettings given;
  given.metrics = true;
  evaluator.Begin(given);
  const auto outcome = RunAgents(
      task, evaluator, settings,
      [&](const Json& node) {
        nodes.push_back(node);
        nodes = SettledNodes(nodes);
        EXPECT_TRUE(store->AddLineage(signature.Key(), (*target)->arch().target, {node}).ok());
      },
      nullptr);
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();

  ASSERT_EQ(nodes.size(), 4u) << outcome->search.reason;
  const std::vector<std::string> verdicts = {"compile_error", "wrong_values", "accepted",
                                             "accepted"};
  const std::vector<std::string> kinds = {"seed", "repair", "repair", "optimize"};
  for (size_t i = 0; i < nodes.size(); ++i) {
    EXPECT_EQ(nodes[i]["verdict"]["verdict"], verdicts[i]) << nodes[i]["verdict"].dump();
    EXPECT_EQ(nodes[i]["kind"], kinds[i]);
  }
  ASSERT_TRUE(outcome->search.best.has_value());
  EXPECT_EQ(outcome->search.best->candidate.params["node"], 3);
  EXPECT_FALSE(outcome->search.best->binary.empty());
  EXPECT_GT(outcome->search.best->verification["cases"].size(), 4u);

  // The Judge was called a second time, and its advice reached the Coder.
  EXPECT_EQ(nodes[1]["advice"]["plan"], "end the statement");
  EXPECT_EQ(nodes[1]["prompts"][1]["name"], "judge_again");
  EXPECT_NE(coder_server.requests().at(3).find("drop the loop"), std::string::npos);

  // Counts equal those of the server; recordings equal what was sent.
  const LedgerSum sum = outcome->ledger.Sum();
  EXPECT_EQ(sum.input_tokens, 4 * 1000 + 3 * 300 + 350);
  EXPECT_EQ(sum.output_tokens, 4 * 200 + 10 + 3 * 20);
  EXPECT_EQ(sum.estimated + sum.unpriced + sum.failed, 0);
  EXPECT_DOUBLE_EQ(sum.usd, (5250 + 870 * 10) / 1e6);
  EXPECT_EQ(RecordedHashes(coder_record), HashesOf(nodes, "coder"));
  EXPECT_EQ(RecordedHashes(judge_record), HashesOf(nodes, "judge"));

  // The database has every node, and serves a winner made of the best one.
  EXPECT_EQ(LastSession(store->Lineage(signature.Key(), (*target)->arch().target)), nodes);
  Promotion promotion;
  promotion.promoted = true;
  promotion.speedup = {1.1, 1.2, 1.3};
  ASSERT_TRUE(store
                  ->Put(MakeWinnerRecord(signature, (*target)->arch(), outcome->search, promotion,
                                         {}, Json::object()))
                  .ok());
  EXPECT_TRUE(store->Get(signature.Key(), (*target)->arch().target)->has_kernel());

  // The same from the recordings, without a network.
  const auto replayed_coder = ProviderOf("replay:" + coder_record, "");
  const auto replayed_judge = ProviderOf("replay:" + judge_record, "");
  settings.coder = replayed_coder.get();
  settings.judge = replayed_judge.get();
  std::vector<Json> again;
  const auto replayed = RunAgents(
      task, evaluator, settings,
      [&again](const Json& node) {
        again.push_back(node);
        again = SettledNodes(again);
      },
      nullptr);
  ASSERT_TRUE(replayed.ok()) << replayed.status().ToString();
  ASSERT_EQ(again.size(), nodes.size()) << replayed->search.reason;
  for (size_t i = 0; i < nodes.size(); ++i) {
    EXPECT_EQ(Essentials(again[i]), Essentials(nodes[i]));
  }
  EXPECT_EQ(replayed->ledger.Sum().tokens(), sum.tokens());
}

}  // namespace
}  // namespace cudaforge
