#include "base/file.h"
#include "cache/kernel_store.h"
#include "forge/agent/memory.h"
#include "tests/cpp/forge/agent_fakes.h"

namespace cudaforge {
namespace {

constexpr const char* kArch = "cpu:test";

class SessionMemoryTest : public AgentTest {
 protected:
  static Candidate By(const std::string& author, size_t row) {
    Candidate candidate = StartCandidate(row);
    candidate.author = author;
    return candidate;
  }
  void Store(const OpSignature& signature, const Candidate& candidate) {
    CacheRecord record;
    record.key = signature.Key();
    record.arch = kArch;
    record.signature = signature.Canonical();
    Variant& kernel = record.variants.emplace_back();
    kernel.candidate = candidate.ToJson().dump();
    kernel.binary = "binary";
    ASSERT_TRUE(store_->Put(record).ok());
  }
  SessionMemory Recall(bool resume = true) const {
    return RecallSession(*store_, signature_, kArch, resume);
  }

  std::unique_ptr<KernelStore> store_ = MakeMemoryKernelStore();
};

TEST_F(SessionMemoryTest, AnEmptyStoreKnowsNothing) {
  const SessionMemory memory = Recall();
  EXPECT_FALSE(memory.start.has_value());
  EXPECT_EQ(memory.origin, StartOrigin::kNone);
  EXPECT_TRUE(memory.unfinished.empty());
}

TEST_F(SessionMemoryTest, OnlyInterruptedSessionIsUnfinished) {
  CodeRows({1, 2});
  settings_.budget.rounds = 2;
  Run({{.ns = 900}, {.ns = 500}, {.ns = 400}});
  ASSERT_TRUE(store_->AddLineage(signature_.Key(), kArch, sunk_).ok());
  SessionMemory memory = Recall();
  EXPECT_EQ(memory.session, "s1");
  EXPECT_EQ(memory.unfinished.size(), 2u);
  EXPECT_TRUE(Recall(/*resume=*/false).unfinished.empty());
  ASSERT_TRUE(memory.start.has_value());
  EXPECT_EQ(memory.origin, StartOrigin::kLineage);
  EXPECT_EQ(memory.start->source.code, "2\n") << "the fastest right one";

  Json refused = sunk_[1];  // in a second run
  refused["verdict"]["verdict"] = "wrong_values";
  ASSERT_TRUE(store_->AddLineage(signature_.Key(), kArch, {refused}).ok());
  EXPECT_EQ(Recall().start->source.code, "1\n");

  ASSERT_TRUE(
      store_->AddLineage(signature_.Key(), kArch, {EndNode("s1", "done", Json::object())}).ok());
  memory = Recall();
  EXPECT_TRUE(memory.unfinished.empty());
  EXPECT_EQ(memory.session, "");
}

TEST_F(SessionMemoryTest, TheWinnerComesFirstAndThenTheNearestSize) {
  for (const int64_t size : {int64_t{64}, int64_t{16}, int64_t{1024}}) {
    Store(Relu({size}, {1}), By("agent:x", static_cast<size_t>(size)));
  }
  Store(Relu({2, 4}, {4, 1}), By("agent:x", 3));  // another rank is not similar
  SessionMemory memory = Recall();
  ASSERT_TRUE(memory.start.has_value());
  EXPECT_EQ(memory.start->source.code, "16");
  EXPECT_EQ(memory.origin, StartOrigin::kNear);
  Store(signature_, By("agent:x", 8));
  const Candidate made_now = By("generator:rows", 1);
  EXPECT_EQ(NearRegionOf(memory, nullptr), Relu({16}, {1}).Key());
  EXPECT_EQ(NearRegionOf(memory, &made_now), "") << "what was made now is the start";
  memory = Recall();
  EXPECT_EQ(NearRegionOf(memory, nullptr), "");
  EXPECT_EQ(memory.origin, StartOrigin::kWinner);
  EXPECT_EQ(memory.start->source.code, "8");
}

TEST_F(SessionMemoryTest, StartIsTheAgentsKernelElseTheGenerators) {
  const Candidate made_now = By("generator:rows", 1);
  const auto start = [&] { return StartOf(Recall(), &made_now)->source.code; };
  EXPECT_FALSE(StartOf(Recall(), nullptr).has_value());
  EXPECT_EQ(start(), "1");
  Store(Relu({16}, {1}), By("agent:x", 16));
  EXPECT_EQ(start(), "1");
  EXPECT_EQ(StartOf(Recall(), nullptr)->source.code, "16");
  Store(signature_, By("generator:rows", 7));
  EXPECT_EQ(start(), "1");
  ASSERT_TRUE(store_->Delete(signature_.Key(), kArch).ok());
  Store(signature_, By("agent:x", 8));
  EXPECT_EQ(start(), "8");
}

TEST_F(SessionMemoryTest, OnlyAgentRegionsAreNoted) {
  ASSERT_TRUE(NoteAgentRegion(*store_, signature_, kArch).ok());
  EXPECT_FALSE(HasAgentRegions(*store_, kArch)) << "the generators make a relu";
  OpSignature product = Relu({8, 8}, {8, 1});
  product.inputs.push_back(product.inputs[0]);
  product.nodes[0].op = "aten::mm";
  product.nodes[0].args.push_back({{"in", 1}});
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(NoteAgentRegion(*store_, product, kArch).ok());
    EXPECT_TRUE(HasAgentRegions(*store_, kArch));
  }
  EXPECT_FALSE(HasAgentRegions(*store_, "cpu:other"));
}

TEST_F(SessionMemoryTest, SessionsLockIsExclusive) {
  EXPECT_FALSE(LockSessions(*store_, "k", kArch).has_value()) << "in memory, of no folder";
  const TempDir folder = TempDir::Create("sessions").value();
  store_ = OpenRocksKernelStore(folder.path(), true).value();
  {
    const auto held = LockSessions(*store_, "k", kArch);
    EXPECT_TRUE(held.has_value());
    EXPECT_FALSE(LockSessions(*store_, "k", kArch).has_value());
    EXPECT_TRUE(LockSessions(*store_, "l", kArch).has_value());
    EXPECT_TRUE(LockSessions(*store_, "k", "cpu:other").has_value());
  }
  EXPECT_TRUE(LockSessions(*store_, "k", kArch).has_value());
}

}  // namespace
}  // namespace cudaforge
