// The store on RocksDB. Readers open the database read-only and keep what they read; a writer takes
// our own lock, opens it, writes, flushes and closes, and then changes the generation file that
// readers look at. FORMAT.md draws the folder.

#include <algorithm>
#include <chrono>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/fork.h"
#include "base/text.h"
#include "cache/kernel_store.h"
#include "cache/rocks_folder.h"
#include "cache/store_rules.h"

namespace cudaforge {
namespace {

// Another process's write is seen this much later at most: a thousand reads in a row look once.
constexpr std::chrono::milliseconds kLookAgain{1};

constexpr size_t kLineageDigits = 10;  // of a node's number, so that keys sort as numbers do

// What one process knows. A forked child gets a fresh one: the parent's may be locked by a thread
// that the child does not have, and its RocksDB handle must be neither used nor closed.
struct ProcessState {
  std::mutex mutex;
  std::unique_ptr<RocksDb> reader;  // null: nothing there, or not readable
  bool looked = false;              // whether opening it was tried, at generation `opened_at`
  uint64_t opened_at = 0;
  std::chrono::steady_clock::time_point looked_at;
  Status health;
  // By StoreKey, as `reader` has them: the decoded records that were asked for.
  std::unordered_map<std::string, std::shared_ptr<const CacheRecord>> winners;
  StoreCounters counters;
  std::vector<std::string> warnings;
  bool warned_of_damage = false, warned_of_earlier = false;
};

// The record under `db_key`; what is damaged is counted in `corrupt` and `errors`. `damaged` and
// `earlier`, when given, are set where the database itself is, or the record is of a format that no
// version reads any more.
std::shared_ptr<const CacheRecord> ReadRecord(const RocksDb& db, const std::string& db_key,
                                              StoreCounters* counters, bool* damaged = nullptr,
                                              bool* earlier = nullptr) {
  for (Family family : {Family::kWinners, Family::kNegatives}) {
    auto bytes = db.Get(family, db_key);
    if (!bytes.ok()) {
      if (bytes.status().code() == StatusCode::kCorruption) {
        ++counters->corrupt;
        if (damaged != nullptr) *damaged = true;
      }
      if (bytes.status().code() == StatusCode::kIoError) ++counters->errors;
      continue;
    }
    auto record = CacheRecord::Decode(*bytes);
    if (record.ok() && StoreKey(record->key, record->arch) == db_key) {
      return std::make_shared<const CacheRecord>(std::move(record).value());
    }
    ++counters->corrupt;
    if (earlier != nullptr && CacheRecord::IsEarlier(*bytes)) *earlier = true;
  }
  return nullptr;
}

// Whether there is a record of a later format: it stays as it is.
bool HasNewer(const RocksDb& db, const std::string& db_key) {
  for (Family family : {Family::kWinners, Family::kNegatives}) {
    const auto bytes = db.Get(family, db_key);
    if (!bytes.ok()) continue;
    if (CacheRecord::Decode(*bytes).status().code() == StatusCode::kUnsupported) return true;
  }
  return false;
}

class RocksKernelStore final : public KernelStore {
 public:
  RocksKernelStore(const std::string& path, bool writable) : folder_(path), writable_(writable) {}

  // Looks at what is there; errors as OpenRocksKernelStore.
  Status Probe() {
    CF_RETURN_IF_ERROR(folder_.Check());
    ProcessState* state = State();
    std::lock_guard lock(state->mutex);
    Refresh(state);
    const StatusCode code = state->health.code();
    return code == StatusCode::kCorruption ? Status::Ok() : state->health;
  }

  std::shared_ptr<const CacheRecord> Get(std::string_view key, std::string_view arch) override {
    ProcessState* state = State();
    std::lock_guard lock(state->mutex);
    ++state->counters.reads;
    const std::string db_key = StoreKey(key, arch);
    Refresh(state);
    if (auto seen = state->winners.find(db_key); seen != state->winners.end()) {
      ++state->counters.hits;
      return seen->second;
    }
    if (state->reader == nullptr) return nullptr;
    bool damaged = false, earlier = false;
    auto found = ReadRecord(*state->reader, db_key, &state->counters, &damaged, &earlier);
    if (damaged) WarnOfDamage(state);
    if (earlier && !std::exchange(state->warned_of_earlier, true)) {
      state->warnings.push_back("the cache in " + folder_.path() +
                                " has records of an earlier version's format: they are not served, "
                                "and replaced when their regions are forged again");
    }
    if (found == nullptr) return nullptr;
    ++state->counters.hits;
    if (found->has_kernel()) state->winners.emplace(db_key, found);
    return found;
  }

  Status PutMany(std::span<const CacheRecord> records, bool replace,
                 std::vector<bool>* stored) override {
    return Store(records, {}, replace, stored);
  }

  Status Conclude(const CacheRecord& record, const std::vector<Json>& lineage,
                  bool* stored) override {
    std::vector<bool> taken;
    CF_RETURN_IF_ERROR(Store({&record, 1}, lineage, false, &taken));
    if (stored != nullptr) *stored = taken[0];
    return Status::Ok();
  }

  Status AddLineage(std::string_view key, std::string_view arch,
                    const std::vector<Json>& nodes) override {
    CF_RETURN_IF_ERROR(CheckStoreKey(key, arch));
    if (nodes.empty()) return Status::Ok();
    const std::string prefix = StoreKey(key, arch) + " ";
    return Write([&](const RocksDb& db) {
      std::vector<DbWrite> writes;
      AppendLineage(db, prefix, nodes, &writes);
      return writes;
    });
  }

  Status Delete(std::string_view key, std::string_view arch) override {
    CF_RETURN_IF_ERROR(CheckStoreKey(key, arch));
    const std::string db_key = StoreKey(key, arch);
    return Write([&](const RocksDb& db) {
      std::vector<DbWrite> writes{{Family::kWinners, db_key, std::nullopt},
                                  {Family::kNegatives, db_key, std::nullopt}};
      (void)db.Scan(Family::kLineage, db_key + " ", [&](std::string_view node, std::string_view) {
        writes.push_back({Family::kLineage, std::string(node), std::nullopt});
        return true;
      });
      return writes;
    });
  }

  Status ForEach(std::string_view arch,
                 const std::function<bool(const CacheRecord&)>& visit) override {
    // A handle of its own, so that `visit` may call back into this store.
    if (!folder_.HasDatabase()) return Status::Ok();
    CF_ASSIGN_OR_RETURN(auto reader, folder_.OpenReader());
    bool going = true;
    Status worst;
    for (Family family : {Family::kWinners, Family::kNegatives}) {
      if (!going) break;
      const auto look = [&](std::string_view key, std::string_view bytes) {
        if (!arch.empty() && key.substr(std::min<size_t>(65, key.size())) != arch) return true;
        auto record = CacheRecord::Decode(bytes);
        if (!record.ok() || !record->Validate().ok() ||
            StoreKey(record->key, record->arch) != key) {
          CountCorrupt(1);
          return true;
        }
        return going = visit(*record);
      };
      int64_t lost = 0;
      const Status status = reader->Scan(family, "", look, &lost);
      CountCorrupt(lost);
      if (!status.ok()) worst = status;
    }
    return worst;
  }

  Status AddWanted(std::span<const WantedRegion> regions) override {
    CF_ASSIGN_OR_RETURN(std::vector<DbWrite> writes, WantedWrites(regions));
    if (writes.empty()) return Status::Ok();
    return Write([&](const RocksDb&) { return writes; });
  }

  Status PutGraph(std::string_view graph, std::string_view arch, const Json& facts,
                  std::span<const WantedRegion> wanted) override {
    CF_RETURN_IF_ERROR(CheckStoreKey(graph, arch));
    CF_ASSIGN_OR_RETURN(std::vector<DbWrite> writes, WantedWrites(wanted));
    writes.push_back({Family::kGraphs, StoreKey(graph, arch), LenientText(facts)});
    return Write([&](const RocksDb&) { return writes; });
  }

  std::optional<Json> GetGraph(std::string_view graph, std::string_view arch) override {
    ProcessState* state = State();
    std::lock_guard lock(state->mutex);
    Refresh(state);
    if (state->reader == nullptr) return std::nullopt;
    auto text = state->reader->Get(Family::kGraphs, StoreKey(graph, arch));
    if (text.status().code() == StatusCode::kNotFound) return std::nullopt;
    if (text.status().code() == StatusCode::kCorruption) WarnOfDamage(state);
    auto facts = text.ok() ? ParseJson(*text) : Result<Json>(text.status());
    if (facts.ok() && facts->is_object()) return std::move(facts).value();
    ++state->counters.corrupt;
    return std::nullopt;
  }

  std::vector<Json> Wanted(std::string_view arch) override {
    std::vector<Json> entries = ScanJson(Family::kWanted, "");
    if (!arch.empty()) {
      std::erase_if(entries, [&](const Json& entry) {
        auto name = JsonString(entry, "arch");
        return !name.ok() || *name != arch;
      });
    }
    return entries;
  }

  Status RemoveWanted(std::string_view key, std::string_view arch) override {
    CF_RETURN_IF_ERROR(CheckStoreKey(key, arch));
    return Write([db_key = StoreKey(key, arch)](const RocksDb&) {
      return std::vector<DbWrite>{{Family::kWanted, db_key, std::nullopt}};
    });
  }

  std::vector<Json> Lineage(std::string_view key, std::string_view arch) override {
    return ScanJson(Family::kLineage, StoreKey(key, arch) + " ");
  }

  StoreCounters counters() const override {
    ProcessState* state = State();
    std::lock_guard lock(state->mutex);
    return state->counters;
  }
  void CountCorrupt(int64_t records) override {
    ProcessState* state = State();
    std::lock_guard lock(state->mutex);
    state->counters.corrupt += records;
  }
  std::string location() const override { return folder_.path(); }
  Status health() const override {
    ProcessState* state = State();
    std::lock_guard lock(state->mutex);
    return state->health;
  }
  std::vector<std::string> TakeWarnings() override {
    ProcessState* state = State();
    std::lock_guard lock(state->mutex);
    return std::exchange(state->warnings, {});
  }

 private:
  // PutMany and Conclude; `lineage` is that of the one record of `records`.
  Status Store(std::span<const CacheRecord> records, const std::vector<Json>& lineage, bool replace,
               std::vector<bool>* stored) {
    CF_ASSIGN_OR_RETURN(const std::vector<std::string> bytes, StorableBytes(records));
    std::vector<bool> taken;
    StoreCounters counters;
    CF_RETURN_IF_ERROR(Write([&](const RocksDb& db) {
      taken.clear();
      // Two records of one key: the better.
      std::unordered_map<std::string, const CacheRecord*> batch;
      std::vector<DbWrite> writes;
      for (size_t i = 0; i < records.size(); ++i) {
        const CacheRecord& record = records[i];
        const std::string db_key = StoreKey(record.key, record.arch);
        if (record.doubtful == 0 && db.Get(Family::kWanted, db_key).ok()) {
          writes.push_back({Family::kWanted, db_key, std::nullopt});
        }
        if (!lineage.empty()) AppendLineage(db, db_key + " ", lineage, &writes);
        auto earlier = batch.find(db_key);
        std::shared_ptr<const CacheRecord> existing;
        if (earlier == batch.end()) existing = ReadRecord(db, db_key, &counters);
        if (existing != nullptr && !existing->Fields().ok()) existing = nullptr;
        const CacheRecord* rival = earlier != batch.end() ? earlier->second : existing.get();
        const bool left = rival == nullptr && !replace && HasNewer(db, db_key);
        taken.push_back(!left && TakesPlaceOf(record, rival, replace));
        if (!taken.back()) continue;
        batch[db_key] = &record;
        const bool kernel = record.has_kernel();
        writes.push_back({kernel ? Family::kWinners : Family::kNegatives, db_key, bytes[i]});
        writes.push_back({kernel ? Family::kNegatives : Family::kWinners, db_key, std::nullopt});
      }
      return writes;
    }));
    ProcessState* state = State();
    std::lock_guard lock(state->mutex);
    state->counters.corrupt += counters.corrupt;
    state->counters.errors += counters.errors;
    if (stored != nullptr) *stored = std::move(taken);
    return Status::Ok();
  }

  // Numbers `nodes` on from those that are there under `prefix`.
  static void AppendLineage(const RocksDb& db, const std::string& prefix,
                            const std::vector<Json>& nodes, std::vector<DbWrite>* writes) {
    uint64_t next = 0;
    (void)db.Scan(Family::kLineage, prefix, [&](std::string_view db_key, std::string_view) {
      next = ParseInteger<uint64_t>(db_key.substr(prefix.size())).value_or(next) + 1;
      return true;
    });
    for (const Json& node : nodes) {
      std::string number = std::to_string(next++);
      number.insert(0, kLineageDigits - std::min(number.size(), kLineageDigits), '0');
      writes->push_back({Family::kLineage, prefix + number, LenientText(node)});
    }
  }

  ProcessState* State() const { return &state_.Get(); }

  // REQUIRES: state->mutex is held.
  void WarnOfDamage(ProcessState* state) {
    if (std::exchange(state->warned_of_damage, true)) return;
    state->warnings.push_back("the cache in " + folder_.path() +
                              " is damaged in places, and kernels there are not served: `cudaforge "
                              "cache export FILE` keeps what is intact; then remove the folder and "
                              "import FILE");
  }

  // What puts `regions` on the wanted list, less those that are on it: a write costs two openings
  // of the database, and most compilations see nothing new.
  Result<std::vector<DbWrite>> WantedWrites(std::span<const WantedRegion> regions) {
    std::vector<DbWrite> writes;
    ProcessState* state = State();
    std::lock_guard lock(state->mutex);
    Refresh(state);
    for (const WantedRegion& region : regions) {
      CF_RETURN_IF_ERROR(CheckStoreKey(region.key, region.arch));
      const std::string db_key = StoreKey(region.key, region.arch);
      const RocksDb* reader = state->reader.get();
      if (reader != nullptr && reader->Get(Family::kWanted, db_key).ok()) continue;
      writes.push_back({Family::kWanted, db_key, LenientText(WantedEntry(region))});
    }
    return writes;
  }

  // Opens the reader again if somebody has written since. REQUIRES: state->mutex is held.
  void Refresh(ProcessState* state) {
    const auto now = std::chrono::steady_clock::now();
    if (state->looked && now - state->looked_at < kLookAgain) return;
    state->looked_at = now;
    const uint64_t generation = folder_.Generation();
    if (state->looked && state->opened_at == generation) return;
    state->looked = true;
    state->opened_at = generation;
    state->health = Status::Ok();
    state->reader.reset();
    state->winners.clear();
    auto reader = folder_.OpenReader();
    if (reader.ok()) {
      state->reader = std::move(reader).value();
      return;
    }
    if (reader.status().code() == StatusCode::kNotFound) return;
    state->health = reader.status();
    ++(reader.status().code() == StatusCode::kCorruption ? state->counters.corrupt
                                                         : state->counters.errors);
    state->warnings.push_back(
        "the cache in " + folder_.path() +
        " cannot be read and is treated as empty: " + reader.status().ToString());
  }

  std::vector<Json> ScanJson(Family family, const std::string& prefix) {
    std::vector<Json> values;
    auto reader = folder_.OpenReader();
    Status status = reader.status();
    if (status.code() == StatusCode::kNotFound) return values;
    if (status.ok()) {
      int64_t lost = 0;
      const auto take = [&](std::string_view, std::string_view text) {
        auto json = ParseJson(text);
        if (json.ok()) {
          values.push_back(std::move(json).value());
        } else {
          ++lost;
        }
        return true;
      };
      status = (*reader)->Scan(family, prefix, take, &lost);
      CountCorrupt(lost);
    }
    if (!status.ok()) CountCorrupt(1);
    return values;
  }

  Status Write(const RocksFolder::MakeWrites& make) {
    if (!writable_) return Status::Unsupported(folder_.path() + ": opened read-only");
    std::vector<std::string> warnings;
    Status status = folder_.Write(make, &warnings);
    ProcessState* state = State();
    std::lock_guard lock(state->mutex);
    ++(status.ok() ? state->counters.writes : state->counters.errors);
    state->warnings.insert(state->warnings.end(), warnings.begin(), warnings.end());
    state->looked = false;  // sees its own write, whatever became of the generation file
    return status;
  }

  const RocksFolder folder_;
  const bool writable_;
  mutable OfProcess<ProcessState> state_;
};

}  // namespace

Result<std::unique_ptr<KernelStore>> OpenRocksKernelStore(const std::string& path, bool writable) {
  auto store = std::make_unique<RocksKernelStore>(path, writable);
  CF_RETURN_IF_ERROR(store->Probe());
  return std::unique_ptr<KernelStore>(std::move(store));
}

}  // namespace cudaforge
