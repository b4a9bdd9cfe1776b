// Every file of the database is truncated, emptied, flipped or deleted. It must never crash or
// serve a wrong record, and the next write must work.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "tests/cpp/cache/test_records.h"

namespace cudaforge {
namespace {

namespace fs = std::filesystem;

constexpr int kRecords = 6;

class Damage : public testing::Test {
 protected:
  // A database with records in two files, lineage, a wanted list and an unflushed log: the state
  // after a killed writer.
  void SetUp() override {
    auto store = OpenStore(good_);
    for (int i = 0; i < kRecords; ++i) {
      ASSERT_TRUE(store->Put(i % 3 == 2 ? TestNegative(i) : TestWinner(i)).ok());
    }
    ASSERT_TRUE(store->Conclude(TestWinner(0), {{{"n", 1}}}).ok());
    ASSERT_TRUE(Want(*store, TestWinner(7).key, kTestArch, SignatureOf(TestWinner(7))).ok());
    for (const auto& entry : fs::directory_iterator(good_ + "/db")) {
      names_.push_back(entry.path().filename());
    }
    std::sort(names_.begin(), names_.end());
  }

  // Applies `spoil` to db/NAME in a copy of the good cache, then uses it as a process would.
  void Try(const std::string& name, const std::function<void(const std::string&)>& spoil,
           const std::string& what) {
    SCOPED_TRACE(name + " " + what);
    const std::string path = folder_.path() + "/bad";
    fs::remove_all(path);
    fs::copy(good_, path, fs::copy_options::recursive);
    spoil(path + "/db/" + name);
    auto store = OpenRocksKernelStore(path, true);
    if (!store.ok()) {
      EXPECT_EQ(store.status().code(), StatusCode::kUnsupported) << store.status().ToString();
      return;
    }
    int found = 0;
    for (int i = 0; i < kRecords; ++i) found += Serve(**store, i) ? 1 : 0;
    if (!(*store)->health().ok()) {
      ++unhealthy_;
      EXPECT_EQ(found, 0);
      EXPECT_FALSE((*store)->TakeWarnings().empty());
      StoreCounters counters = (*store)->counters();
      EXPECT_GT(counters.corrupt + counters.errors, 0);
    }
    (void)(*store)->Lineage(TestWinner(0).key, kTestArch);
    (void)(*store)->Wanted("");
    (void)(*store)->ForEach("", [&](const CacheRecord& record) {
      EXPECT_TRUE(record.Validate().ok());
      return true;
    });
    ASSERT_TRUE((*store)->Put(TestWinner(100)).ok());
    EXPECT_TRUE(Serve(**store, 100));
    EXPECT_TRUE((*store)->health().ok());
    for (int i = 0; i < kRecords; ++i) (void)Serve(**store, i);
    if (fs::exists(path + "/db.damaged-1")) {
      ++moved_;
      auto warnings = (*store)->TakeWarnings();
      ASSERT_FALSE(warnings.empty());
      EXPECT_NE(warnings.back().find("db.damaged-1"), std::string::npos);
    }
  }

  // Returns true if record `i` is served; then it must equal the stored one.
  static bool Serve(KernelStore& store, int i) {
    auto record = store.Get(TestWinner(i).key, kTestArch);
    if (record == nullptr) return false;
    const bool negative = i % 3 == 2 && i < kRecords;
    EXPECT_EQ(record->Encode(), (negative ? TestNegative(i) : TestWinner(i)).Encode()) << i;
    return true;
  }

  static void Flip(const std::string& file, size_t at, int bit) {
    std::string bytes = ReadFile(file).value();
    if (at >= bytes.size()) return;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
    ASSERT_TRUE(WriteFileAtomic(file, bytes).ok());
  }

  TempDir folder_ = TestFolder();
  std::string good_ = folder_.path() + "/good";
  std::vector<std::string> names_;
  int unhealthy_ = 0, moved_ = 0;
};

TEST_F(Damage, TruncatedEmptiedOrDeleted) {
  for (const std::string& name : names_) {
    Try(
        name, [](const std::string& file) { fs::resize_file(file, fs::file_size(file) / 2); },
        "cut in half");
    Try(
        name, [](const std::string& file) { fs::resize_file(file, 0); }, "emptied");
    Try(
        name, [](const std::string& file) { fs::remove(file); }, "deleted");
  }
  EXPECT_GT(unhealthy_, 0);
  EXPECT_GT(moved_, 0);
}

TEST_F(Damage, OneBitFlipped) {
  std::mt19937_64 random(1);
  for (const std::string& name : names_) {
    const size_t size = fs::file_size(good_ + "/db/" + name);
    if (size == 0) continue;
    // Anywhere, and in the tail: the footer of a table has no checksum.
    for (size_t at :
         {size_t{0}, random() % size, size / 2, size - 1 - random() % std::min<size_t>(size, 53)}) {
      Try(
          name, [&](const std::string& file) { Flip(file, at, static_cast<int>(random() % 8)); },
          "flipped at " + std::to_string(at));
    }
  }
}

TEST_F(Damage, NoDatabaseInItsFolder) {
  const std::string path = folder_.path() + "/junk";
  ASSERT_TRUE(MakeDirs(path + "/db").ok());
  ASSERT_TRUE(WriteFileAtomic(path + "/db/letter.txt", "dear diary").ok());
  auto store = OpenStore(path);
  EXPECT_EQ(store->health().code(), StatusCode::kCorruption);
  ASSERT_TRUE(store->Put(TestWinner(1)).ok());
  EXPECT_EQ(ReadFile(path + "/db.damaged-1/letter.txt").value(), "dear diary");
}

TEST_F(Damage, TheGenerationFile) {
  for (const char* bytes : {"", "x", "0123456789 and more"}) {
    auto reader = OpenRocksKernelStore(good_, false).value();
    auto writer = OpenStore(good_);
    ASSERT_TRUE(WriteFileAtomic(good_ + "/generation", bytes).ok());
    ASSERT_TRUE(writer->Put(TestWinner(200), true).ok());
    EXPECT_TRUE(Serve(*reader, 200));
    EXPECT_TRUE(Serve(*reader, 0));
  }
}

TEST_F(Damage, DamagedBlockIsAMissUntilTheNextWrite) {
  const std::string path = folder_.path() + "/cache";
  ASSERT_TRUE(OpenStore(path)->Put(TestWinner(1)).ok());
  ASSERT_TRUE(OpenStore(path)->Put(TestWinner(2, 1.5, 20'000)).ok());
  std::string largest;
  for (const auto& entry : fs::directory_iterator(path + "/db")) {
    if (entry.path().extension() != ".sst") continue;
    if (largest.empty() || entry.file_size() > fs::file_size(largest)) largest = entry.path();
  }
  for (size_t at = 200; at < 2000; at += 100) Flip(largest, at, 0);
  auto store = OpenStore(path);
  const std::string lost = TestWinner(2).key;
  EXPECT_NE(store->Get(TestWinner(1).key, kTestArch), nullptr);
  EXPECT_EQ(store->Get(lost, kTestArch), nullptr);
  EXPECT_EQ(store->Get(lost, kTestArch), nullptr);
  EXPECT_EQ(store->counters().corrupt, 2);
  EXPECT_EQ(store->TakeWarnings().size(), 1u);
  const Status listed = store->ForEach("", [](const CacheRecord&) { return true; });
  EXPECT_EQ(listed.code(), StatusCode::kCorruption);
  EXPECT_NE(listed.message().find(path), std::string::npos);
  ASSERT_TRUE(store->Put(TestWinner(3)).ok());
  EXPECT_NE(store->Get(TestWinner(1).key, kTestArch), nullptr);
  ASSERT_TRUE(store->Put(TestWinner(2)).ok());
  EXPECT_TRUE(fs::exists(path + "/db.damaged-1"));
  EXPECT_NE(store->Get(lost, kTestArch), nullptr);
  EXPECT_EQ(store->Get(TestWinner(1).key, kTestArch), nullptr);
  EXPECT_EQ(store->TakeWarnings().size(), 1u);
}

}  // namespace
}  // namespace cudaforge
