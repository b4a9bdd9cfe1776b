// The contract of KernelStore, on each implementation.
#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/cpp/cache/test_records.h"

namespace cudaforge {
namespace {

class StoreContract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_.emplace(TestFolder());
    store_ = GetParam() == "memory" ? MakeMemoryKernelStore() : OpenStore(folder_->path() + "/c");
  }
  std::shared_ptr<const CacheRecord> Get(int i) {
    return store_->Get(TestWinner(i).key, kTestArch);
  }

  std::optional<TempDir> folder_;
  std::unique_ptr<KernelStore> store_;
};

TEST_P(StoreContract, UndecodableRecordIsNotStored) {
  CacheRecord huge = TestWinner(1);
  huge.verification = Json{{"log", std::string(size_t{33} << 20, 'x')}}.dump();
  EXPECT_EQ(store_->Put(huge).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Get(1), nullptr);
  EXPECT_EQ(store_->counters().corrupt, 0);
}

TEST_P(StoreContract, PutAndGet) {
  EXPECT_EQ(Get(1), nullptr);
  ASSERT_TRUE(store_->Put(TestWinner(1)).ok());
  auto found = Get(1);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->variants[0].binary, TestWinner(1).variants[0].binary);
  EXPECT_EQ(store_->Get(TestWinner(1).key, "cuda:sm_90a"), nullptr);
  EXPECT_EQ(Get(2), nullptr);
  StoreCounters counters = store_->counters();
  EXPECT_EQ(counters.reads, 4);
  EXPECT_EQ(counters.hits, 1);
  EXPECT_EQ(counters.writes, 1);
  EXPECT_EQ(counters.corrupt, 0);
  EXPECT_EQ(counters.errors, 0);
}

TEST_P(StoreContract, RecordFromAnotherVerifierIsReplaced) {
  CacheRecord older = TestWinner(1, 1.9);
  older.versions = {{"torch", "2.11.0"}, {"verifier", 1}};
  CacheRecord newer = TestWinner(1, 1.2);
  newer.versions = {{"torch", "2.11.0"}, {"verifier", 2}};
  ASSERT_TRUE(store_->Put(older).ok());
  ASSERT_TRUE(store_->Put(newer).ok());
  EXPECT_EQ(Get(1)->SpeedupLow(), 1.2);
  newer.versions["torch"] = "2.12.0";
  newer.variants.clear();
  newer.provenance = R"({"reason":"no time","out_of_time":true})";
  ASSERT_TRUE(store_->Put(newer).ok());
  EXPECT_FALSE(Get(1)->has_kernel());
}

TEST_P(StoreContract, SameKernelDoesNotReplace) {
  CacheRecord again = TestWinner(1, 1.5);
  ASSERT_TRUE(store_->Put(again).ok());
  again.variants[0].timing = TestWinner(1, 1.9).variants[0].timing;
  std::vector<bool> stored;
  ASSERT_TRUE(store_->PutMany({&again, 1}, Stays::kBetter, &stored).ok());
  EXPECT_FALSE(stored[0]);
  EXPECT_EQ(Get(1)->SpeedupLow(), 1.5);
}

TEST_P(StoreContract, DoubtfulRecordKeepsTheWantedEntry) {
  CacheRecord record = TestWinner(1);
  ASSERT_TRUE(Want(*store_, record.key, record.arch, SignatureOf(record)).ok());
  record.doubtful = 1;
  ASSERT_TRUE(store_->Put(record).ok());
  EXPECT_EQ(store_->Wanted("").size(), 1u);
  record.doubtful = 0;
  ASSERT_TRUE(store_->Put(record).ok());
  EXPECT_TRUE(store_->Wanted("").empty());
}

TEST_P(StoreContract, DoubtfulRecordIsReplaced) {
  CacheRecord beside = TestWinner(1, 4.5);
  beside.doubtful = 1;
  ASSERT_TRUE(store_->Put(beside).ok());
  EXPECT_NE(Get(1)->doubtful, 0);
  ASSERT_TRUE(store_->Put(TestNegative(1)).ok());
  EXPECT_FALSE(Get(1)->has_kernel());
  EXPECT_EQ(Get(1)->doubtful, 0);
  ASSERT_TRUE(store_->Put(beside).ok());
  EXPECT_FALSE(Get(1)->has_kernel()) << "it replaces no verdict that had its time";
  ASSERT_TRUE(store_->Put(beside, true).ok());
  ASSERT_TRUE(store_->Put(TestWinner(1, 1.1)).ok());
  EXPECT_EQ(Get(1)->SpeedupLow(), 1.1);
}

TEST_P(StoreContract, DoubtfulRecordReplacesOneThatRanOutOfTime) {
  CacheRecord beside = TestNegative(1), too_short = TestNegative(1);
  beside.doubtful = 1;
  too_short.provenance = R"({"reason":"no time","out_of_time":true})";
  ASSERT_TRUE(too_short.RanOutOfTime());
  ASSERT_FALSE(beside.RanOutOfTime());
  ASSERT_TRUE(store_->Put(too_short).ok());
  ASSERT_TRUE(store_->Put(beside).ok());
  EXPECT_NE(Get(1)->doubtful, 0);
}

TEST_P(StoreContract, BetterWinnerStays) {
  ASSERT_TRUE(store_->Put(TestWinner(1, 1.5)).ok());
  std::vector<bool> stored;
  std::vector<CacheRecord> slower = {TestWinner(1, 1.2)};
  ASSERT_TRUE(store_->PutMany(slower, Stays::kBetter, &stored).ok());
  EXPECT_EQ(stored, std::vector<bool>{false});
  EXPECT_EQ(Get(1)->SpeedupLow(), 1.5);
  ASSERT_TRUE(store_->Put(TestWinner(1, 1.9)).ok());
  EXPECT_EQ(Get(1)->SpeedupLow(), 1.9);
  ASSERT_TRUE(store_->Put(TestWinner(1, 1.2), true).ok());
  EXPECT_EQ(Get(1)->SpeedupLow(), 1.2);
}

TEST_P(StoreContract, WinnersAndNegatives) {
  ASSERT_TRUE(store_->Put(TestNegative(1)).ok());
  EXPECT_FALSE(Get(1)->has_kernel());
  ASSERT_TRUE(store_->Put(TestWinner(1)).ok());
  EXPECT_TRUE(Get(1)->has_kernel());
  ASSERT_TRUE(store_->Put(TestNegative(1)).ok());
  EXPECT_TRUE(Get(1)->has_kernel());
  ASSERT_TRUE(store_->Put(TestNegative(1), true).ok());
  EXPECT_FALSE(Get(1)->has_kernel());
  ASSERT_TRUE(store_->Delete(TestWinner(1).key, kTestArch).ok());
  EXPECT_EQ(Get(1), nullptr);
}

TEST_P(StoreContract, KernelForEagerCallsRanksBetween) {
  ASSERT_TRUE(store_->Put(TestNegative(1)).ok());
  ASSERT_TRUE(store_->Put(TestEagerOnly(1)).ok());
  EXPECT_EQ(Get(1)->variants[0].candidate, TestEagerOnly(1).variants[0].candidate);
  ASSERT_TRUE(store_->Put(TestNegative(1)).ok());
  EXPECT_FALSE(Get(1)->has_kernel()) << "what was found last";
  CacheRecord longer = TestEagerOnly(1, 1.8);
  ASSERT_TRUE(store_->Put(longer).ok());
  longer.provenance = R"({"budget_s":60})";
  ASSERT_TRUE(store_->Put(longer).ok());
  EXPECT_EQ(Get(1)->provenance, longer.provenance) << "the same kernel, given more time";
  CacheRecord same = TestWinner(1, 1.8);
  ASSERT_TRUE(store_->Put(same).ok()) << "the same kernel, which has won by now";
  EXPECT_TRUE(Get(1)->Serves().compiled);
  ASSERT_TRUE(store_->Put(TestEagerOnly(1, 5)).ok());
  EXPECT_TRUE(Get(1)->Serves().compiled);
  ASSERT_TRUE(store_->Put(TestEagerOnly(1), true).ok());
  EXPECT_FALSE(Get(1)->Serves().compiled);
}

TEST_P(StoreContract, PutRemovesTheWantedEntry) {
  for (int number : {1, 2}) {
    const WantedRegion region{TestWinner(number).key, kTestArch, Json::object()};
    ASSERT_TRUE(store_->AddWanted({&region, 1}).ok());
  }
  ASSERT_TRUE(store_->Delete(TestWinner(1).key, kTestArch).ok());
  EXPECT_EQ(store_->Wanted("").size(), 2u);
  ASSERT_TRUE(store_->RemoveWanted(TestWinner(1).key, kTestArch).ok());
  ASSERT_TRUE(store_->RemoveWanted(TestWinner(3).key, kTestArch).ok());  // it is not on the list
  EXPECT_FALSE(store_->RemoveWanted("short", kTestArch).ok());
  const std::vector<Json> wanted = store_->Wanted("");
  ASSERT_EQ(wanted.size(), 1u);
  EXPECT_EQ(wanted[0]["key"], TestWinner(2).key);
}

TEST_P(StoreContract, RefusesUndecodableRecords) {
  CacheRecord wrong = TestWinner(1);
  wrong.key = TestWinner(2).key;
  EXPECT_FALSE(store_->Put(wrong).ok());
  EXPECT_FALSE(store_->Delete("short", kTestArch).ok());
  EXPECT_FALSE(Want(*store_, std::string(64, 'G'), kTestArch, {}).ok());
  EXPECT_FALSE(store_->Conclude(wrong, {}).ok());
  EXPECT_EQ(store_->counters().writes, 0);
}

TEST_P(StoreContract, ForEachInOrder) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(store_->Put(TestWinner(i)).ok());
  CacheRecord other = TestWinner(9);
  other.arch = "cuda:sm_90a";
  ASSERT_TRUE(store_->Put(other).ok());
  ASSERT_TRUE(store_->Put(TestNegative(7)).ok());
  std::vector<std::string> keys;
  auto collect = [&](const CacheRecord& record) {
    keys.push_back(record.key);
    EXPECT_NE(store_->Get(record.key, record.arch), nullptr);  // visit may call the store
    return true;
  };
  ASSERT_TRUE(store_->ForEach(kTestArch, collect).ok());
  ASSERT_EQ(keys.size(), 6u);
  EXPECT_TRUE(std::is_sorted(keys.begin(), keys.end() - 1));
  EXPECT_EQ(keys.back(), TestNegative(7).key);
  keys.clear();
  ASSERT_TRUE(store_->ForEach("", collect).ok());
  EXPECT_EQ(keys.size(), 7u);
  int visits = 0;
  ASSERT_TRUE(store_->ForEach("", [&](const CacheRecord&) { return ++visits < 2; }).ok());
  EXPECT_EQ(visits, 2);
}

TEST_P(StoreContract, Graphs) {
  const std::string graph(64, 'a');
  EXPECT_FALSE(store_->GetGraph(graph, kTestArch).has_value());
  ASSERT_TRUE(store_->PutGraph(graph, kTestArch, {{"pays", false}}, {}).ok());
  EXPECT_EQ(store_->GetGraph(graph, kTestArch), Json({{"pays", false}}));
  EXPECT_FALSE(store_->GetGraph(graph, "cuda:sm_90a").has_value());
  ASSERT_TRUE(store_->PutGraph(graph, kTestArch, {{"pays", true}}, {}).ok());
  EXPECT_EQ(store_->GetGraph(graph, kTestArch), Json({{"pays", true}}));
  EXPECT_FALSE(store_->PutGraph("short", kTestArch, {}, {}).ok());
}

TEST_P(StoreContract, Wanted) {
  const CacheRecord record = TestWinner(1);
  const Json signature = SignatureOf(record);
  ASSERT_TRUE(Want(*store_, record.key, kTestArch, signature).ok());
  const int64_t writes = store_->counters().writes;
  ASSERT_TRUE(Want(*store_, record.key, kTestArch, {{"other", 1}}).ok());
  EXPECT_EQ(store_->counters().writes, writes);
  ASSERT_TRUE(Want(*store_, record.key, "cuda:sm_90a", signature).ok());
  auto wanted = store_->Wanted(kTestArch);
  ASSERT_EQ(wanted.size(), 1u);
  EXPECT_EQ(wanted[0]["signature"], signature);
  EXPECT_GT(wanted[0]["first_seen"], 1'600'000'000);
  EXPECT_EQ(store_->Wanted("").size(), 2u);
  ASSERT_TRUE(store_->Put(record).ok());  // known now
  EXPECT_TRUE(store_->Wanted(kTestArch).empty());
  EXPECT_EQ(store_->Wanted("").size(), 1u);
}

TEST_P(StoreContract, LineageKeepsItsOrder) {
  const CacheRecord record = TestWinner(1);
  std::vector<Json> nodes;
  for (int i = 0; i < 12; ++i) nodes.push_back({{"n", i}});
  ASSERT_TRUE(store_->Conclude(record, nodes).ok());
  ASSERT_TRUE(store_->Conclude(record, {{{"n", 12}, {"log", "\xff"}}}).ok());
  bool stored = true;
  ASSERT_TRUE(store_->Conclude(TestNegative(1), {}, &stored).ok());
  EXPECT_FALSE(stored) << "the winner stays";
  ASSERT_TRUE(store_->Conclude(TestNegative(2), {{{"n", 99}}}, &stored).ok());
  EXPECT_TRUE(stored);
  auto lineage = store_->Lineage(record.key, kTestArch);
  ASSERT_EQ(lineage.size(), 13u);
  for (int i = 0; i < 13; ++i) EXPECT_EQ(lineage[static_cast<size_t>(i)]["n"], i);
  EXPECT_TRUE(store_->Lineage(record.key, "cuda:sm_90a").empty());
  EXPECT_FALSE(store_->Get(TestNegative(2).key, kTestArch)->has_kernel());
  ASSERT_TRUE(store_->Delete(record.key, kTestArch).ok());
  EXPECT_TRUE(store_->Lineage(record.key, kTestArch).empty());
  EXPECT_EQ(store_->Lineage(TestNegative(2).key, kTestArch).size(), 1u);
}

TEST_P(StoreContract, LineageGrowsWithoutARecord) {
  const CacheRecord record = TestWinner(1);
  ASSERT_TRUE(store_->AddLineage(record.key, kTestArch, {{{"n", 0}}, {{"n", 1}}}).ok());
  ASSERT_TRUE(store_->AddLineage(record.key, kTestArch, {}).ok());
  EXPECT_EQ(store_->Get(record.key, kTestArch), nullptr);
  ASSERT_TRUE(store_->Conclude(record, {{{"n", 2}}}).ok());
  ASSERT_TRUE(store_->AddLineage(record.key, kTestArch, {{{"n", 3}, {"log", "\xff"}}}).ok());
  const auto lineage = store_->Lineage(record.key, kTestArch);
  ASSERT_EQ(lineage.size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(lineage[static_cast<size_t>(i)]["n"], i);
  EXPECT_EQ(store_->counters().writes, 3);
  EXPECT_EQ(store_->AddLineage("short", kTestArch, {{{"n", 4}}}).code(),
            StatusCode::kInvalidArgument);
  ASSERT_TRUE(store_->Delete(record.key, kTestArch).ok());
  EXPECT_TRUE(store_->Lineage(record.key, kTestArch).empty());
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreContract, testing::Values("memory", "rocks"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace cudaforge
