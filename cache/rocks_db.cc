#include "cache/rocks_db.h"

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/version.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdarg>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/fork.h"
#include "base/text.h"
#include "cache/kernel_store.h"

namespace cudaforge {
namespace {

constexpr std::array<const char*, kFamilies> kFamilyNames = {"winners", "negatives", "wanted",
                                                             "lineage", "meta",      "graphs"};
constexpr const char* kFormatKey = "format";
// Sessions are too short for RocksDB's own compaction, and each leaves a small file per family. The
// session that leaves this many compacts the family. If that fails, the next attempt is at twice as
// many: on a full disk a failing compaction takes seconds.
constexpr int kLevel0FilesToCompact = 9;

rocksdb::CompressionType Compression() {
  const auto supported = rocksdb::GetSupportedCompressions();
  for (auto type : {rocksdb::kZSTD, rocksdb::kSnappyCompression}) {
    if (std::find(supported.begin(), supported.end(), type) != supported.end()) return type;
  }
  return rocksdb::kNoCompression;
}

// Discards RocksDB's log. On a full disk its second line aborts the process, in a library built
// with assertions.
class NoLog : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char* /*format*/, va_list /*args*/) override {}
};

// RocksDB's default environment, but each background job has its own thread, which ends with the
// database. At exit, the default waits for its threads; a forked child does not have them, and
// hangs.
class JobThreads final : public rocksdb::EnvWrapper {
 public:
  JobThreads() : EnvWrapper(rocksdb::Env::Default()) {}
  const char* Name() const override { return "cudaforge"; }

  void Schedule(void (*function)(void*), void* arg, Priority /*priority*/, void* /*tag*/,
                void (* /*unschedule*/)(void*)) override {
    const std::lock_guard lock(mutex_);
    jobs_.emplace_back(function, arg);
  }
  int UnSchedule(void* /*tag*/, Priority /*priority*/) override { return 0; }  // there is no queue
  void IncBackgroundThreadsIfNeeded(int /*number*/, Priority /*priority*/) override {}

 private:
  std::mutex mutex_;
  std::vector<std::jthread> jobs_;
};

rocksdb::DBOptions DatabaseOptions(rocksdb::Env* env) {
  rocksdb::DBOptions options;
  options.env = env;
  options.info_log = std::make_shared<NoLog>();
  options.max_open_files = -1;  // so that other processes' compactions do not remove a reader's
                                // files
  options.max_file_opening_threads = 1;
  options.max_background_jobs = 2;
  options.skip_stats_update_on_db_open = true;
  return options;
}

rocksdb::ColumnFamilyOptions FamilyOptions() {
  rocksdb::BlockBasedTableOptions table;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  // Readable by every RocksDB since 6.6, so that older libraries can read a newer library's cache.
  table.format_version = 5;
  rocksdb::ColumnFamilyOptions options;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.compression = Compression();
  // Write() compacts by itself. A write must never wait for a compaction that does not run.
  options.disable_auto_compactions = true;
  options.level0_slowdown_writes_trigger = 1 << 20;
  options.level0_stop_writes_trigger = 1 << 20;
  options.soft_pending_compaction_bytes_limit = 0;
  options.hard_pending_compaction_bytes_limit = 0;
  return options;
}

Status FromRocks(const rocksdb::Status& status) {
  if (status.ok()) return Status::Ok();
  const std::string text = status.ToString();
  if (status.IsNotFound()) return Status::NotFound(text);
  // A missing file of the manifest, or a missing column family, is damage too.
  if (status.IsCorruption() || status.IsPathNotFound() || status.IsInvalidArgument()) {
    return Status::Corruption(text);
  }
  if (status.IsNotSupported()) return Status::Unsupported(text);
  return Status::IoError(text);
}

// Our families, in the order of Family, then RocksDB's default.
std::vector<std::string> OurFamilies() {
  std::vector<std::string> names(kFamilyNames.begin(), kFamilyNames.end());
  names.push_back(rocksdb::kDefaultColumnFamilyName);
  return names;
}

std::vector<rocksdb::ColumnFamilyDescriptor> Descriptors(const std::vector<std::string>& names) {
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  for (const std::string& name : names) families.emplace_back(name, FamilyOptions());
  return families;
}

// RocksDB takes process-wide locks to open and close a database; a child forked meanwhile would
// find them taken. A writable database has a timer thread, for which a child would wait at exit.
using NoFork = NoForkMeanwhile<RocksDb>;

}  // namespace

struct RocksDb::Impl {
  std::optional<NoFork> writes;
  const std::unique_ptr<rocksdb::Env> env = std::make_unique<JobThreads>();
  std::unique_ptr<rocksdb::DB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  std::array<rocksdb::ColumnFamilyHandle*, kFamilies> by_family = {};  // null: missing

  ~Impl() {
    for (auto* handle : handles) (void)db->DestroyColumnFamilyHandle(handle);
  }
  rocksdb::ColumnFamilyHandle* handle(Family family) const {
    return by_family[static_cast<size_t>(family)];
  }
  void NameHandles() {
    for (size_t i = 0; i < by_family.size(); ++i) {
      for (auto* handle : handles) {
        if (handle->GetName() == kFamilyNames[i]) by_family[i] = handle;
      }
    }
  }
};

RocksDb::RocksDb(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RocksDb::~RocksDb() {
  const NoFork closes;
  impl_.reset();
}

Status RocksDb::Create(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0) return ErrnoStatus(folder, errno);
  const NoFork creates;
  Impl impl;
  rocksdb::DBOptions options = DatabaseOptions(impl.env.get());
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  rocksdb::DB* db = nullptr;
  auto status = rocksdb::DB::Open(options, folder, Descriptors(OurFamilies()), &impl.handles, &db);
  if (!status.ok()) return Status::IoError(status.ToString());
  impl.db.reset(db);
  impl.NameHandles();
  rocksdb::WriteOptions durable;
  durable.sync = true;
  status =
      db->Put(durable, impl.handle(Family::kMeta), kFormatKey, std::to_string(kDatabaseFormat));
  if (status.ok()) status = db->Flush({}, impl.handle(Family::kMeta));
  return FromRocks(status);
}

Result<std::unique_ptr<RocksDb>> RocksDb::Open(const std::string& folder, bool writer) {
  const NoFork opens;
  auto impl = std::make_unique<Impl>();
  if (writer) impl->writes.emplace();
  rocksdb::DB* db = nullptr;
  rocksdb::DBOptions options = DatabaseOptions(impl->env.get());
  // Versions may add families. A reader opens those that exist. A writer creates missing ones, and
  // must open unknown ones too.
  std::vector<std::string> names;
  if (!rocksdb::DB::ListColumnFamilies(options, folder, &names).ok()) names = OurFamilies();
  if (writer) {
    options.create_missing_column_families = true;
    for (const std::string& name : OurFamilies()) {
      if (!IsIn(name, names)) names.push_back(name);
    }
  }
  const auto families = Descriptors(names);
  const auto status =
      writer ? rocksdb::DB::Open(options, folder, families, &impl->handles, &db)
             : rocksdb::DB::OpenForReadOnly(options, folder, families, &impl->handles, &db);
  if (!status.ok()) {
    Status mapped = FromRocks(status);
    // In an existing folder, anything missing is damage.
    if (mapped.code() == StatusCode::kNotFound) mapped = Status::Corruption(mapped.message());
    return mapped;
  }
  impl->db.reset(db);
  impl->NameHandles();
  std::unique_ptr<RocksDb> open(new RocksDb(std::move(impl)));
  auto format = open->Get(Family::kMeta, kFormatKey);
  int number = 0;
  if (format.ok()) {
    const char* end = format->data() + format->size();
    if (std::from_chars(format->data(), end, number).ptr != end) number = 0;
  }
  if (number > kDatabaseFormat) {
    return Status::Unsupported(folder + ": database format " + std::to_string(number) +
                               " is newer than this version reads");
  }
  if (number != kDatabaseFormat) return Status::Corruption(folder + ": no database format");
  return open;
}

Result<std::unique_ptr<RocksDb>> RocksDb::OpenReader(const std::string& folder) {
  return Open(folder, false);
}

Result<std::unique_ptr<RocksDb>> RocksDb::OpenWriter(const std::string& folder) {
  return Open(folder, true);
}

Result<std::string> RocksDb::Get(Family family, const std::string& key) const {
  if (impl_->handle(family) == nullptr) return Status::NotFound(key);
  rocksdb::ReadOptions options;
  options.fill_cache = false;  // each value is read only once
  std::string value;
  CF_RETURN_IF_ERROR(FromRocks(impl_->db->Get(options, impl_->handle(family), key, &value)));
  return value;
}

Status RocksDb::Scan(
    Family family, const std::string& prefix,
    const std::function<bool(std::string_view key, std::string_view value)>& visit) const {
  if (impl_->handle(family) == nullptr) return Status::Ok();
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  std::unique_ptr<rocksdb::Iterator> it(impl_->db->NewIterator(options, impl_->handle(family)));
  for (it->Seek(prefix); it->Valid() && it->key().starts_with(prefix); it->Next()) {
    if (!visit(it->key().ToStringView(), it->value().ToStringView())) return Status::Ok();
  }
  return FromRocks(it->status());
}

Status RocksDb::Write(const std::vector<DbWrite>& writes) {
  if (writes.empty()) return Status::Ok();
  rocksdb::WriteBatch batch;
  std::array<bool, kFamilies> touched = {};
  for (const DbWrite& write : writes) {
    auto* handle = impl_->handle(write.family);
    touched[static_cast<size_t>(write.family)] = true;
    const auto status = write.value.has_value() ? batch.Put(handle, write.key, *write.value)
                                                : batch.Delete(handle, write.key);
    CF_RETURN_IF_ERROR(FromRocks(status));
  }
  rocksdb::WriteOptions durable;
  durable.sync = true;
  CF_RETURN_IF_ERROR(FromRocks(impl_->db->Write(durable, &batch)));
  // Every later open would replay a remaining log, so each session empties it.
  std::vector<rocksdb::ColumnFamilyHandle*> flushed;
  for (size_t i = 0; i < touched.size(); ++i) {
    if (touched[i]) flushed.push_back(impl_->by_family[i]);
  }
  CF_RETURN_IF_ERROR(FromRocks(impl_->db->Flush({}, flushed)));
  for (auto* handle : flushed) {
    std::string files;
    impl_->db->GetProperty(handle, "rocksdb.num-files-at-level0", &files);
    int count = 0;
    std::from_chars(files.data(), files.data() + files.size(), count);
    // A failed compaction loses nothing: the write above is durable.
    if (count > 0 && count % kLevel0FilesToCompact == 0) {
      (void)impl_->db->CompactRange(rocksdb::CompactRangeOptions(), handle, nullptr, nullptr);
    }
  }
  return Status::Ok();
}

std::string RocksDbVersion() { return rocksdb::GetRocksVersionAsString(); }

}  // namespace cudaforge
