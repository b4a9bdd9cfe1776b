#include "cache/pack.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/cpp/cache/test_records.h"

namespace cudaforge {
namespace {

class Pack : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(from_->Put(TestWinner(i)).ok());
    ASSERT_TRUE(from_->Put(TestNegative(8)).ok());
    CacheRecord other = TestWinner(9);
    other.arch = "cuda:sm_90a";
    ASSERT_TRUE(from_->Put(other).ok());
  }
  TempDir folder_ = TestFolder();
  std::string file_ = folder_.path() + "/winners.cfpack";
  std::unique_ptr<KernelStore> from_ = MakeMemoryKernelStore();
  std::unique_ptr<KernelStore> to_ = OpenStore(folder_.path() + "/cache");
};

TEST_F(Pack, CarriesRecordsToAnEmptyCache) {
  EXPECT_EQ(ExportPack(*from_, file_, "")->exported, 5);
  const auto exported = ExportPack(*from_, file_, kTestArch);
  EXPECT_EQ(exported->exported, 4);
  EXPECT_EQ(exported->without_winner, 1);
  auto summary = ImportPack(*to_, file_);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(summary->imported, 4);
  EXPECT_EQ(summary->rejected, 0);
  for (int i = 0; i < 4; ++i) {
    auto record = to_->Get(TestWinner(i).key, kTestArch);
    ASSERT_NE(record, nullptr);
    EXPECT_EQ(record->Encode(), TestWinner(i).Encode());
  }
  EXPECT_EQ(summary->without_winner, 1);
  auto negative = to_->Get(TestNegative(8).key, kTestArch);
  ASSERT_NE(negative, nullptr);
  EXPECT_EQ(negative->Encode(), TestNegative(8).Encode());
  summary = ImportPack(*to_, file_);
  EXPECT_EQ(summary->kept_existing, 5);
  EXPECT_EQ(summary->without_winner, 0);
}

TEST_F(Pack, WinnerStaysIfThePackHasNone) {
  ASSERT_TRUE(ExportPack(*from_, file_, kTestArch).ok());
  ASSERT_TRUE(to_->Put(TestWinner(8)).ok());
  const auto summary = ImportPack(*to_, file_);
  EXPECT_EQ(summary->kept_existing, 1);
  EXPECT_EQ(summary->without_winner, 0);
  EXPECT_TRUE(to_->Get(TestWinner(8).key, kTestArch)->has_kernel());
}

TEST_F(Pack, ExistingWinnersStayUnlessReplaced) {
  ASSERT_TRUE(ExportPack(*from_, file_, kTestArch).ok());
  CacheRecord other = TestWinner(2, 1.9);
  other.versions = {{"torch", "2.10.0"}};
  ASSERT_TRUE(to_->Put(TestWinner(0, 1.9)).ok());
  ASSERT_TRUE(to_->Put(TestWinner(1, 1.1)).ok());
  ASSERT_TRUE(to_->Put(other).ok());
  ASSERT_TRUE(to_->Put(TestNegative(3)).ok());
  ASSERT_TRUE(to_->Put(TestWinner(8)).ok());
  const auto low = [&](int i) { return to_->Get(TestWinner(i).key, kTestArch)->SpeedupLow(); };
  auto summary = ImportPack(*to_, file_);
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->imported, 2);
  EXPECT_EQ(summary->kept_existing, 3);
  EXPECT_EQ(low(0), 1.9);
  EXPECT_EQ(low(1), 1.1) << "the pack's 1.5 is only claimed";
  EXPECT_EQ(low(2), 1.5) << "another torch judged the one that was there";
  EXPECT_TRUE(to_->Get(TestWinner(3).key, kTestArch)->has_kernel());
  summary = ImportPack(*to_, file_, {}, true);
  EXPECT_EQ(summary->imported, 4);
  EXPECT_EQ(summary->kept_existing, 1);
  EXPECT_EQ(low(0), 1.5);
  EXPECT_EQ(low(1), 1.5);
  EXPECT_TRUE(to_->Get(TestWinner(8).key, kTestArch)->has_kernel());
}

TEST_F(Pack, WinnerReplacesAKernelForEagerCalls) {
  ASSERT_TRUE(from_->Put(TestEagerOnly(8)).ok());
  EXPECT_EQ(ExportPack(*from_, file_, kTestArch)->exported, 5);
  ASSERT_TRUE(to_->Put(TestEagerOnly(1, 1.1)).ok());
  ASSERT_TRUE(to_->Put(TestEagerOnly(8, 1.1)).ok());
  EXPECT_EQ(ImportPack(*to_, file_)->kept_existing, 1);
  EXPECT_TRUE(to_->Get(TestWinner(1).key, kTestArch)->Serves().compiled);
  EXPECT_EQ(to_->Get(TestWinner(8).key, kTestArch)->race(), TestEagerOnly(8, 1.1).race());
  ASSERT_TRUE(from_->Put(TestNegative(8), true).ok());
  ASSERT_TRUE(ExportPack(*from_, file_, kTestArch).ok());
  EXPECT_TRUE(ImportPack(*to_, file_).ok());
  EXPECT_TRUE(to_->Get(TestWinner(8).key, kTestArch)->has_kernel()) << "raced here";
}

TEST_F(Pack, DoubtfulRecordsAreNotExportedAndAreReplaced) {
  CacheRecord beside = TestWinner(9, 4.5);
  beside.doubtful = 1;
  ASSERT_TRUE(from_->Put(beside).ok());
  EXPECT_EQ(ExportPack(*from_, file_, kTestArch)->exported, 4);
  beside = TestWinner(0, 4.5);
  beside.doubtful = 1;
  ASSERT_TRUE(to_->Put(beside).ok());
  EXPECT_EQ(ImportPack(*to_, file_)->kept_existing, 0);
  EXPECT_EQ(to_->Get(beside.key, kTestArch)->SpeedupLow(), 1.5);
}

TEST_F(Pack, TheImporterDecidesOnEachRecord) {
  ASSERT_TRUE(ExportPack(*from_, file_, kTestArch).ok());
  ImportHooks hooks;
  hooks.accept = [](CacheRecord* record) {
    if (!record->has_kernel()) return Status::Ok();
    record->variants[0].binary = "built here";
    return record->key == TestWinner(2).key ? Status::InvalidArgument("wrong values here")
                                            : Status::Ok();
  };
  std::map<std::string, Imported> told;
  hooks.tell = [&](Imported what, const std::string& line) { told[line] = what; };
  ASSERT_TRUE(to_->Put(TestWinner(0)).ok());
  auto summary = ImportPack(*to_, file_, hooks);
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->imported, 2);
  EXPECT_EQ(summary->rejected, 1);
  ASSERT_EQ(summary->problems.size(), 1u);
  EXPECT_EQ(summary->problems[0], TestWinner(2).key.substr(0, 12) + ": wrong values here");
  const auto digits = [](int i) { return TestWinner(i).key.substr(0, 12); };
  EXPECT_EQ(told, (std::map<std::string, Imported>{{digits(0), Imported::kKeptExisting},
                                                   {digits(1), Imported::kStored},
                                                   {summary->problems[0], Imported::kRejected},
                                                   {digits(3), Imported::kStored}}));
  EXPECT_EQ(to_->Get(TestWinner(2).key, kTestArch), nullptr);
  EXPECT_EQ(to_->Get(TestWinner(1).key, kTestArch)->variants[0].binary, "built here");
}

// As Ctrl-C during a proof.
TEST_F(Pack, InterruptedImportKeepsAcceptedKernels) {
  ASSERT_TRUE(ExportPack(*from_, file_, kTestArch).ok());
  int seen = 0;
  ImportHooks hooks;
  hooks.accept = [&](CacheRecord*) {
    if (++seen == 3) throw std::runtime_error("interrupted");
    return Status::Ok();
  };
  EXPECT_THROW((void)ImportPack(*to_, file_, hooks), std::runtime_error);
  int64_t kept = 0;
  ASSERT_TRUE(to_->ForEach("",
                           [&](const CacheRecord& record) {
                             kept += record.has_kernel();
                             return true;
                           })
                  .ok());
  EXPECT_EQ(kept, 2);
}

TEST_F(Pack, NothingToExportMakesNoFile) {
  EXPECT_EQ(ExportPack(*from_, file_, "cuda:sm_80")->exported, 0);
  EXPECT_FALSE(PathExists(file_));
}

TEST_F(Pack, DamagedPackImportsNothing) {
  ASSERT_TRUE(ExportPack(*from_, file_, kTestArch).ok());
  const std::string good = ReadFile(file_).value();
  for (size_t at = 0; at < good.size(); at += 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    ASSERT_TRUE(WriteFileAtomic(file_, bad).ok());
    EXPECT_EQ(ImportPack(*to_, file_).status().code(), StatusCode::kCorruption) << at;
  }
  for (size_t n : {size_t{0}, size_t{3}, size_t{70}, good.size() / 2, good.size() - 1}) {
    ASSERT_TRUE(WriteFileAtomic(file_, good.substr(0, n)).ok());
    EXPECT_EQ(ImportPack(*to_, file_).status().code(), StatusCode::kCorruption) << n;
  }
  EXPECT_EQ(to_->counters().writes, 0);
  EXPECT_EQ(ImportPack(*to_, folder_.path() + "/none").status().code(), StatusCode::kNotFound);
}

// A pack made by hand: its checksum is valid, its contents are not.
std::string HandMade(const Json& records, const std::string& payload, char format = 1) {
  const std::string manifest = Json{{"records", records}}.dump();
  std::string bytes = "CFPK";
  bytes += format;
  bytes.append(3, '\0');
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(manifest.size() >> (8 * i));
  bytes += manifest + payload;
  return bytes + Sha256Hex(bytes);
}

TEST_F(Pack, BadRecordsAreReported) {
  const std::string good = TestWinner(1).Encode();
  const std::string negative = TestNegative(2).Encode();
  CacheRecord wrong_key = TestWinner(3);
  wrong_key.key = TestWinner(4).key;
  CacheRecord odd = TestNegative(5);
  odd.provenance = R"({"created":1e300})";
  CacheRecord no_evidence = TestWinner(6);
  no_evidence.verification = "[1]";
  const std::string wrong = wrong_key.Encode() + odd.Encode() + no_evidence.Encode();
  auto entry = [](const std::string& bytes) {
    return Json{{"bytes", bytes.size()}, {"sha256", Sha256Hex(bytes)}};
  };
  Json records = {entry(good),
                  entry(negative),
                  entry(wrong_key.Encode()),
                  entry(odd.Encode()),
                  entry(no_evidence.Encode()),
                  {{"bytes", 4}, {"sha256", "x"}}};
  records.push_back({{"bytes", int64_t{1} << 60}, {"sha256", ""}});
  records.push_back({{"bytes", -1}, {"sha256", ""}});
  records.push_back("not an object");
  ASSERT_TRUE(WriteFileAtomic(file_, HandMade(records, good + negative + wrong + "junk")).ok());
  auto summary = ImportPack(*to_, file_);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(summary->imported, 1);
  EXPECT_EQ(summary->without_winner, 1);
  EXPECT_EQ(summary->rejected, 7);
  ASSERT_EQ(summary->problems.size(), 7u);
  EXPECT_TRUE(summary->problems[1].starts_with("record 3: ")) << summary->problems[1];
  EXPECT_NE(summary->problems[1].find("provenance.created"), std::string::npos);
  EXPECT_NE(summary->problems[2].find("verification"), std::string::npos);
}

TEST_F(Pack, HostileManifests) {
  ASSERT_TRUE(WriteFileAtomic(file_, HandMade(Json::array(), "", 2)).ok());
  EXPECT_EQ(ImportPack(*to_, file_).status().code(), StatusCode::kUnsupported);
  ASSERT_TRUE(WriteFileAtomic(file_, HandMade(Json::array(), "", 0)).ok());
  EXPECT_EQ(ImportPack(*to_, file_).status().code(), StatusCode::kCorruption);
  ASSERT_TRUE(WriteFileAtomic(file_, HandMade("no list", "")).ok());
  EXPECT_EQ(ImportPack(*to_, file_).status().code(), StatusCode::kCorruption);
  std::string huge = HandMade(Json::array(), "");
  huge.replace(8, 8, 8, '\xff');
  huge.resize(huge.size() - 64);
  ASSERT_TRUE(WriteFileAtomic(file_, huge + Sha256Hex(huge)).ok());
  EXPECT_EQ(ImportPack(*to_, file_).status().code(), StatusCode::kCorruption);
}

TEST_F(Pack, UnwritableFileIsAnError) {
  EXPECT_FALSE(ExportPack(*from_, folder_.path() + "/no/such/folder/x", "").ok());
}

}  // namespace
}  // namespace cudaforge
