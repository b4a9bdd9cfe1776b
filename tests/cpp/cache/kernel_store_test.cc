#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "base/subprocess.h"
#include "cache/rocks_db.h"
#include "tests/cpp/cache/test_records.h"
#include "tests/cpp/forked.h"

namespace cudaforge {
namespace {

namespace fs = std::filesystem;

class RocksStore : public testing::Test {
 protected:
  TempDir folder_ = TestFolder();
  std::string path_ = folder_.path() + "/deep/cache";
};

using Handles = std::vector<rocksdb::ColumnFamilyHandle*>;

// Opens the database of `path` with all its families, bypassing the store.
void WithDatabase(const std::string& path, const std::function<void(rocksdb::DB*, Handles*)>& use) {
  const rocksdb::DBOptions options;
  std::vector<std::string> names;
  ASSERT_TRUE(rocksdb::DB::ListColumnFamilies(options, path + "/db", &names).ok());
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  for (const std::string& name : names) families.emplace_back(name, rocksdb::ColumnFamilyOptions());
  Handles handles;
  rocksdb::DB* db = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open(options, path + "/db", families, &handles, &db).ok());
  use(db, &handles);
  for (auto* handle : handles) ASSERT_TRUE(db->DestroyColumnFamilyHandle(handle).ok());
  delete db;
}

rocksdb::ColumnFamilyHandle* FamilyOf(const Handles& handles, const std::string& name) {
  return *std::find_if(handles.begin(), handles.end(),
                       [&](auto* handle) { return handle->GetName() == name; });
}

TEST_F(RocksStore, FirstWriteCreatesTheFiles) {
  auto store = OpenStore(path_);
  EXPECT_EQ(store->Get(TestWinner(1).key, kTestArch), nullptr);
  EXPECT_TRUE(store->ForEach("", [](const CacheRecord&) { return true; }).ok());
  EXPECT_TRUE(store->Wanted("").empty());
  EXPECT_TRUE(store->health().ok());
  EXPECT_FALSE(PathExists(folder_.path() + "/deep"));
  ASSERT_TRUE(store->Put(TestWinner(1)).ok());
  for (const char* name : {"", "/db"}) {
    struct stat info;
    ASSERT_EQ(stat((path_ + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u) << name;
  }
}

TEST_F(RocksStore, PersistsAcrossProcesses) {
  ASSERT_TRUE(OpenStore(path_)->Put(TestWinner(1)).ok());
  auto reader = OpenRocksKernelStore(path_, false).value();
  ASSERT_NE(reader->Get(TestWinner(1).key, kTestArch), nullptr);
  EXPECT_EQ(reader->Put(TestWinner(2)).code(), StatusCode::kUnsupported);
}

// Registered before RocksDB's destructors, so it runs after them, and before LeakSanitizer, which
// would count memory of the parent's threads.
bool in_forked_child = false;
const int registered = std::atexit([] {
  if (in_forked_child) _exit(7);
});

TEST_F(RocksStore, ForkedChildExitsAfterParentsWrite) {
  ASSERT_EQ(registered, 0);
  ASSERT_TRUE(OpenStore(path_)->Put(TestWinner(1)).ok());
  EXPECT_EQ(InForkedChild([]() -> int {
              in_forked_child = true;
              std::exit(0);
            }),
            7);
}

TEST_F(RocksStore, ChildForkedDuringAWriteExits) {
  std::atomic<bool> done = false;
  std::atomic<int> written = 0;  // including attempts
  std::thread writer([&] {
    auto store = OpenStore(path_);
    for (int i = 0; !done; ++i) {
      EXPECT_TRUE(store->Put(TestWinner(i % 5, 2.0 + i)).ok());
      ++written;
    }
  });
  while (written == 0) std::this_thread::yield();
  for (int child = 0; child < 30; ++child) {
    EXPECT_EQ(InForkedChild([]() -> int {
                in_forked_child = true;
                std::exit(0);
              }),
              7);
  }
  done = true;
  writer.join();
  EXPECT_GT(written, 1);
}

// RocksDB takes process-wide locks to open and close a database; a child forked meanwhile would
// find them taken.
TEST_F(RocksStore, ChildForkedDuringAnOpenCanOpen) {
  ASSERT_TRUE(OpenStore(path_)->Put(TestWinner(1)).ok());
  std::atomic<bool> done = false;
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&] {
      while (!done) EXPECT_NE(OpenStore(path_)->Get(TestWinner(1).key, kTestArch), nullptr);
    });
  }
  for (int child = 0; child < 60; ++child) {
    EXPECT_EQ(InForkedChild([&] {
                return OpenStore(path_)->Get(TestWinner(1).key, kTestArch) != nullptr ? 0 : 1;
              }),
              0);
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
}

TEST_F(RocksStore, ReaderSeesAnotherStoresWrites) {
  auto writer = OpenStore(path_);
  auto reader = OpenRocksKernelStore(path_, false).value();
  EXPECT_EQ(reader->Get(TestWinner(1).key, kTestArch), nullptr);
  for (int i = 1; i < 30; ++i) {  // past a compaction
    ASSERT_TRUE(writer->Put(TestWinner(i)).ok());
    ASSERT_NE(reader->Get(TestWinner(i).key, kTestArch), nullptr) << i;
  }
  ASSERT_TRUE(writer->Put(TestNegative(50)).ok());
  EXPECT_FALSE(reader->Get(TestNegative(50).key, kTestArch)->has_kernel());
  ASSERT_TRUE(writer->Put(TestWinner(50)).ok());
  EXPECT_TRUE(reader->Get(TestNegative(50).key, kTestArch)->has_kernel());
  ASSERT_TRUE(writer->Put(TestWinner(50, 3.0)).ok());  // replaces a winner that was read
  EXPECT_EQ(reader->Get(TestWinner(50).key, kTestArch)->SpeedupLow(), 3.0);
  ASSERT_TRUE(writer->Delete(TestWinner(29).key, kTestArch).ok());
  EXPECT_EQ(reader->Get(TestWinner(29).key, kTestArch), nullptr);
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(path_ + "/db")) {
    if (entry.path().extension() == ".sst") ++files;
  }
  EXPECT_LE(files, 30u) << "33 sessions without a compaction leave at least 61";
}

TEST_F(RocksStore, PlainFileAtThePathIsKept) {
  const std::string file = folder_.path() + "/file";
  ASSERT_TRUE(WriteFileAtomic(file, "precious").ok());
  for (const std::string& path : {file, file + "/cache"}) {
    auto store = OpenRocksKernelStore(path, true);
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.status().code(), StatusCode::kIoError);
    EXPECT_NE(store.status().message().find(file), std::string::npos);
  }
  EXPECT_EQ(ReadFile(file).value(), "precious");
  ASSERT_TRUE(MakeDirs(path_).ok());
  ASSERT_TRUE(WriteFileAtomic(path_ + "/db", "precious").ok());
  EXPECT_EQ(OpenRocksKernelStore(path_, true).status().code(), StatusCode::kIoError);
  EXPECT_EQ(ReadFile(path_ + "/db").value(), "precious");
}

TEST_F(RocksStore, InvalidFolderIsAWriteError) {
  auto store = OpenStore("/proc/no/such/cache");
  EXPECT_EQ(store->Get(TestWinner(1).key, kTestArch), nullptr);
  EXPECT_EQ(store->Put(TestWinner(1)).code(), StatusCode::kIoError);
  EXPECT_EQ(store->counters().errors, 1);
}

TEST_F(RocksStore, ReadOnlyFolder) {
  ASSERT_TRUE(OpenStore(path_)->Put(TestWinner(1)).ok());
  // For another user, the folder is read-only; modes do not restrict root.
  fs::permissions(folder_.path(), fs::perms(0755));
  fs::permissions(folder_.path() + "/deep", fs::perms(0755));
  fs::permissions(path_, fs::perms(0555));
  fs::permissions(path_ + "/db", fs::perms(0555));
  const int code = InForkedChild([&] {
    if (getuid() == 0 && setuid(65534) != 0) return 10;
    auto store = OpenRocksKernelStore(path_, true);
    if (!store.ok()) return 11;
    if ((*store)->Get(TestWinner(1).key, kTestArch) == nullptr) return 12;
    return (*store)->Put(TestWinner(2)).code() == StatusCode::kIoError ? 0 : 13;
  });
  EXPECT_EQ(code, 0);
  fs::permissions(path_, fs::perms(0700));
  fs::permissions(path_ + "/db", fs::perms(0700));
  EXPECT_NE(OpenStore(path_)->Get(TestWinner(1).key, kTestArch), nullptr);
}

TEST_F(RocksStore, NewerFormatIsKept) {
  ASSERT_TRUE(OpenStore(path_)->Put(TestWinner(1)).ok());
  auto open = OpenStore(path_);
  {
    auto db = RocksDb::OpenWriter(path_ + "/db").value();
    ASSERT_TRUE(db->Write({{Family::kMeta, "format", "2"}}).ok());
  }
  std::vector<std::pair<std::string, fs::file_time_type>> before, after;
  auto list = [&](auto* files) {
    for (const auto& entry : fs::directory_iterator(path_ + "/db")) {
      files->emplace_back(entry.path(), entry.last_write_time());
    }
    std::sort(files->begin(), files->end());
  };
  list(&before);
  EXPECT_EQ(OpenRocksKernelStore(path_, true).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(open->Put(TestWinner(2)).code(), StatusCode::kUnsupported);
  list(&after);
  EXPECT_EQ(before, after);
}

TEST_F(RocksStore, FamiliesOfOtherVersions) {
  const CacheRecord record = TestWinner(1);
  {
    auto store = OpenStore(path_);
    ASSERT_TRUE(store->Put(record).ok());
    ASSERT_TRUE(store->PutGraph(record.key, kTestArch, {{"n", 1}}, {}).ok());
  }
  // Made by an older version, then opened by a newer one with another family.
  WithDatabase(path_, [](rocksdb::DB* db, Handles* handles) {
    ASSERT_TRUE(db->DropColumnFamily(FamilyOf(*handles, "graphs")).ok());
    handles->push_back(nullptr);
    ASSERT_TRUE(db->CreateColumnFamily({}, "of-tomorrow", &handles->back()).ok());
    ASSERT_TRUE(db->Put({}, handles->back(), "key", "value").ok());
  });
  auto store = OpenStore(path_);
  EXPECT_NE(store->Get(record.key, kTestArch), nullptr);
  EXPECT_FALSE(store->GetGraph(record.key, kTestArch).has_value());
  ASSERT_TRUE(store->PutGraph(record.key, kTestArch, {{"n", 2}}, {}).ok());
  EXPECT_EQ(store->GetGraph(record.key, kTestArch)->at("n"), 2);
  EXPECT_NE(store->Get(record.key, kTestArch), nullptr);
  EXPECT_TRUE(store->TakeWarnings().empty());
  std::vector<std::string> names;
  ASSERT_TRUE(rocksdb::DB::ListColumnFamilies({}, path_ + "/db", &names).ok());
  EXPECT_EQ(std::count(names.begin(), names.end(), "of-tomorrow"), 1);
}

TEST_F(RocksStore, RecordUnderAnotherKeyIsNotServed) {
  ASSERT_TRUE(OpenStore(path_)->Put(TestWinner(1)).ok());
  const std::string other = TestWinner(2).key;
  {
    auto db = RocksDb::OpenWriter(path_ + "/db").value();
    ASSERT_TRUE(db->Write({{Family::kWinners, other + " " + kTestArch, TestWinner(1).Encode()},
                           {Family::kWanted, other + " " + kTestArch, "no json"},
                           {Family::kWinners, "short", "x"}})
                    .ok());
  }
  auto store = OpenStore(path_);
  EXPECT_EQ(store->Get(other, kTestArch), nullptr);
  EXPECT_EQ(store->counters().corrupt, 1);
  int visits = 0;
  EXPECT_TRUE(store->ForEach(kTestArch, [&](const CacheRecord&) { return ++visits > 0; }).ok());
  EXPECT_EQ(visits, 1);
  EXPECT_TRUE(store->Wanted("").empty());
  ASSERT_TRUE(store->Put(TestWinner(2)).ok());
  EXPECT_NE(store->Get(other, kTestArch), nullptr);
}

TEST_F(RocksStore, StoredRecordWithAnInvalidFieldIsDamage) {
  ASSERT_TRUE(OpenStore(path_)->Put(TestWinner(1)).ok());
  CacheRecord odd = TestWinner(2);
  odd.versions = "2.11.0";
  {
    auto db = RocksDb::OpenWriter(path_ + "/db").value();
    const std::string place = odd.key + " " + kTestArch;
    ASSERT_TRUE(db->Write({{Family::kWinners, place, odd.Encode()}}).ok());
  }
  auto store = OpenStore(path_);
  EXPECT_EQ(store->Get(odd.key, kTestArch), nullptr);
  int visits = 0;
  EXPECT_TRUE(store->ForEach("", [&](const CacheRecord&) { return ++visits > 0; }).ok());
  EXPECT_EQ(visits, 1);
  EXPECT_EQ(store->counters().corrupt, 2);
  ASSERT_TRUE(store->Put(TestWinner(2)).ok());
  EXPECT_NE(store->Get(odd.key, kTestArch), nullptr);
}

TEST_F(RocksStore, EarlierFormatIsACountedMissAndReplaced) {
  std::string earlier = TestWinner(1).Encode();
  earlier[4] = CacheRecord::kFormat - 1;
  ASSERT_TRUE(OpenStore(path_)->Put(TestWinner(2)).ok());
  {
    auto db = RocksDb::OpenWriter(path_ + "/db").value();
    const std::string place = TestWinner(1).key + " " + kTestArch;
    ASSERT_TRUE(db->Write({{Family::kWinners, place, Sealed(earlier)}}).ok());
  }
  auto store = OpenStore(path_);
  int visits = 0;
  EXPECT_TRUE(store->ForEach("", [&](const CacheRecord&) { return ++visits > 0; }).ok());
  EXPECT_EQ(visits, 1);
  EXPECT_EQ(store->counters().corrupt, 1);
  EXPECT_EQ(store->Get(TestWinner(1).key, kTestArch), nullptr);
  EXPECT_EQ(store->counters().corrupt, 2);
  EXPECT_EQ(store->Get(TestWinner(1).key, kTestArch), nullptr);
  EXPECT_EQ(store->TakeWarnings().size(), 1u) << "once";
  ASSERT_TRUE(store->Put(TestNegative(1)).ok());
  EXPECT_NE(store->Get(TestWinner(1).key, kTestArch), nullptr);
}

TEST_F(RocksStore, ForkedChildUsesItsParentsStore) {
  auto store = OpenStore(path_);
  ASSERT_TRUE(store->Put(TestWinner(1)).ok());
  ASSERT_TRUE(store->Put(TestWinner(2)).ok());
  ASSERT_NE(store->Get(TestWinner(1).key, kTestArch), nullptr);
  const int code = InForkedChild([&] {
    if (store->Get(TestWinner(1).key, kTestArch) == nullptr) return 1;
    if (store->Get(TestWinner(2).key, kTestArch) == nullptr) return 2;
    if (!store->Put(TestWinner(3)).ok()) return 3;
    store.reset();  // must not close the parent's handle
    return 0;
  });
  EXPECT_EQ(code, 0);
  ASSERT_TRUE(store->Put(TestWinner(4)).ok());
  for (const int written : {3, 4}) {
    EXPECT_NE(store->Get(TestWinner(written).key, kTestArch), nullptr) << written;
  }
}

TEST_F(RocksStore, ForkedChildWritesToItsOwnStore) {
  ASSERT_TRUE(OpenStore(path_)->Put(TestWinner(1)).ok());
  for (const std::string& path : {path_, path_ + "-of-the-child"}) {
    const int code =
        InForkedChild([&] { return OpenStore(path)->Put(TestWinner(2)).ok() ? 0 : 1; });
    EXPECT_EQ(code, 0) << path;
    EXPECT_NE(OpenStore(path)->Get(TestWinner(2).key, kTestArch), nullptr) << path;
  }
}

TEST_F(RocksStore, FullDiskLosesNothing) {
  const std::string disk = folder_.path() + "/disk";
  ASSERT_TRUE(MakeDirs(disk).ok());
  auto mounted = RunProcess({"mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk});
  if (!mounted.ok() || mounted->exit_code != 0) GTEST_SKIP() << "cannot mount a small tmpfs";
  {
    auto store = OpenStore(disk + "/cache");
    Status status;
    int stored = 0;
    for (; stored < 100 && status.ok(); ++stored) {
      status = store->Put(TestWinner(stored, 1.5, 200'000));
    }
    --stored;
    EXPECT_EQ(status.code(), StatusCode::kIoError) << status.ToString();
    EXPECT_GT(stored, 0);
    for (int i = 0; i < stored; ++i) {
      EXPECT_NE(store->Get(TestWinner(i).key, kTestArch), nullptr) << i;
    }
    EXPECT_TRUE(store->TakeWarnings().empty());
    auto grown = RunProcess({"mount", "-o", "remount,size=30m", disk});
    ASSERT_TRUE(grown.ok() && grown->exit_code == 0);
    EXPECT_TRUE(store->Put(TestWinner(1000)).ok());
    for (int i = 0; i < stored; ++i) {
      EXPECT_NE(OpenStore(disk + "/cache")->Get(TestWinner(i).key, kTestArch), nullptr) << i;
    }
  }
  (void)RunProcess({"umount", disk});
}

TEST_F(RocksStore, FullDiskDuringCompactionLosesNothing) {
  const std::string disk = folder_.path() + "/disk";
  ASSERT_TRUE(MakeDirs(disk).ok());
  auto mounted = RunProcess({"mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk});
  if (!mounted.ok() || mounted->exit_code != 0) GTEST_SKIP() << "cannot mount a small tmpfs";
  const CacheRecord first = TestWinner(1);
  ASSERT_TRUE(OpenStore(disk + "/cache")->Put(first).ok());
  for (const size_t left : {0, 4096, 8192, 16384}) {
    {
      std::ofstream filler(disk + "/filler", std::ios::binary);
      const std::string block(4096, 'x');
      while (filler.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
      }
    }
    const auto full = static_cast<off_t>(std::filesystem::file_size(disk + "/filler"));
    ASSERT_EQ(truncate((disk + "/filler").c_str(), full - static_cast<off_t>(left)), 0);
    for (int session = 0; session < 2; ++session) {
      auto store = OpenStore(disk + "/cache");
      const WantedRegion wanted{std::string(64, 'a'), kTestArch, Json::object()};
      const Status added = store->AddWanted({&wanted, 1});
      EXPECT_TRUE(added.ok() || added.code() == StatusCode::kIoError) << added.ToString();
      EXPECT_EQ(store->Put(TestWinner(2, 1.5, 100'000)).code(), StatusCode::kIoError) << left;
      EXPECT_NE(store->Get(first.key, kTestArch), nullptr) << left;
    }
    std::filesystem::remove(disk + "/filler");
    EXPECT_NE(OpenStore(disk + "/cache")->Get(first.key, kTestArch), nullptr) << left;
  }
  EXPECT_TRUE(OpenStore(disk + "/cache")->Put(TestWinner(3)).ok());
  (void)RunProcess({"umount", disk});
}

TEST_F(RocksStore, LaterFormatIsKept) {
  std::string later = TestWinner(1).Encode();
  later[4] = CacheRecord::kFormat + 1;
  later = Sealed(later);
  ASSERT_TRUE(OpenStore(path_)->Put(TestWinner(1)).ok());
  const std::string db_key = TestWinner(1).key + " " + kTestArch;
  WithDatabase(path_, [&](rocksdb::DB* db, Handles* handles) {
    ASSERT_TRUE(db->Put({}, FamilyOf(*handles, "winners"), db_key, later).ok());
  });
  auto store = OpenStore(path_);
  for (const CacheRecord& record : {TestWinner(1, 9), TestNegative(1)}) {
    std::vector<bool> stored;
    ASSERT_TRUE(store->PutMany({&record, 1}, Stays::kBetter, &stored).ok());
    EXPECT_FALSE(stored[0]);
  }
  EXPECT_EQ(store->Get(TestWinner(1).key, kTestArch), nullptr);
  store.reset();
  WithDatabase(path_, [&](rocksdb::DB* db, Handles* handles) {
    std::string bytes;
    ASSERT_TRUE(db->Get({}, FamilyOf(*handles, "winners"), db_key, &bytes).ok());
    EXPECT_EQ(bytes, later);
  });
}

TEST_F(RocksStore, WinnerWithDamagedEvidenceIsReplaced) {
  CacheRecord damaged = TestWinner(1, 9);
  damaged.verification = "{";
  ASSERT_TRUE(OpenStore(path_)->Put(TestWinner(1)).ok());
  WithDatabase(path_, [&](rocksdb::DB* db, Handles* handles) {
    ASSERT_TRUE(
        db->Put({}, FamilyOf(*handles, "winners"), damaged.key + " " + kTestArch, damaged.Encode())
            .ok());
  });
  auto store = OpenStore(path_);
  int seen = 0;
  ASSERT_TRUE(store->ForEach("", [&](const CacheRecord&) { return ++seen; }).ok());
  EXPECT_EQ(seen, 0);
  ASSERT_TRUE(store->Put(TestWinner(1, 1.5)).ok());
  EXPECT_EQ(store->Get(damaged.key, kTestArch)->SpeedupLow(), 1.5);
}

TEST_F(RocksStore, AThousandWinners) {
  std::vector<CacheRecord> records;
  for (int i = 0; i < 1000; ++i) records.push_back(TestWinner(i, 1.5, 20'000));
  ASSERT_TRUE(OpenStore(path_)->PutMany(records).ok());
  const auto start = std::chrono::steady_clock::now();
  auto store = OpenRocksKernelStore(path_, false).value();
  int found = 0;
  for (const CacheRecord& record : records) {
    if (store->Get(record.key, kTestArch) != nullptr) ++found;
  }
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(found, 1000);
  std::printf("opened and read 1,000 winners of 20 kB: %.1f ms\n", ms.count());
}

}  // namespace
}  // namespace cudaforge
