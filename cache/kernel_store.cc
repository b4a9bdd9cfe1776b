#include "cache/kernel_store.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/fork.h"
#include "base/text.h"
#include "cache/database.h"
#include "cache/rocks_folder.h"
#include "cache/store_rules.h"

namespace cudaforge {
namespace {

// The longest delay until another process's write is seen. Many reads in a row check only once.
constexpr std::chrono::milliseconds kLookAgain{1};

constexpr size_t kLineageDigits = 10;  // of a node's number, so that keys sort like numbers

// One process's view. A forked child makes its own: the parent's may be locked by a thread that the
// child lacks, and its RocksDB handle must not be used or closed.
struct ProcessState {
  std::mutex mutex;
  std::shared_ptr<const Database> reader;  // null: no database, or unreadable
  bool looked = false;  // whether opening it was attempted, at generation `opened_at`
  uint64_t opened_at = 0;
  std::chrono::steady_clock::time_point looked_at;
  Status health;
  // Decoded records that were requested, by StoreKey, as `reader` has them.
  std::unordered_map<std::string, std::shared_ptr<const CacheRecord>> winners;
  StoreCounters counters;
  std::vector<std::string> warnings;
  bool warned_of_damage = false, warned_of_earlier = false;
};

// The content of one key.
struct Found {
  std::shared_ptr<const CacheRecord> record;  // null if none is readable
  bool earlier = false, later = false;        // whether an unreadable one has another format
  Status status;                              // of the database
};

// Counts damage in `corrupt` and `errors`.
Found ReadRecord(const Database& db, const std::string& db_key, StoreCounters* counters) {
  Found found;
  for (Family family : {Family::kWinners, Family::kNegatives}) {
    const auto bytes = db.Get(family, db_key);
    if (bytes.status().code() == StatusCode::kNotFound) continue;
    if (!bytes.ok()) {
      found.status = bytes.status();
      const bool damaged = found.status.code() == StatusCode::kCorruption;
      ++(damaged ? counters->corrupt : counters->errors);
      continue;
    }
    auto record = CacheRecord::Decode(*bytes);
    if (record.ok() && StoreKey(record->key, record->arch) == db_key) {
      found.record = std::make_shared<const CacheRecord>(std::move(record).value());
      return found;
    }
    ++counters->corrupt;
    found.earlier |= CacheRecord::IsEarlier(*bytes);
    found.later |= record.status().code() == StatusCode::kUnsupported;
  }
  return found;
}

class DatabaseStore final : public KernelStore {
 public:
  DatabaseStore(std::unique_ptr<Storage> storage, bool writable)
      : storage_(std::move(storage)), writable_(writable) {}

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
    const Found looked = ReadRecord(*state->reader, db_key, &state->counters);
    const std::shared_ptr<const CacheRecord>& found = looked.record;
    if (looked.status.code() == StatusCode::kCorruption) WarnOfDamage(state, looked.status);
    if (looked.earlier && !std::exchange(state->warned_of_earlier, true)) {
      state->warnings.push_back("the cache in " + location() +
                                " has records in an earlier format, which are not used. "
                                "Forge their regions again to replace them");
    }
    if (found == nullptr) return nullptr;
    ++state->counters.hits;
    if (found->has_kernel()) state->winners.emplace(db_key, found);
    return found;
  }

  Status PutMany(std::span<const CacheRecord> records, Stays stays, std::vector<bool>* stored,
                 const std::vector<Json>& lineage) override {
    CF_ASSIGN_OR_RETURN(const std::vector<std::string> bytes, StorableBytes(records));
    std::vector<bool> taken;
    StoreCounters counters;
    CF_RETURN_IF_ERROR(Write([&](const Database& db) -> Result<std::vector<DbWrite>> {
      taken.clear();
      std::vector<DbWrite> writes;
      for (size_t i = 0; i < records.size(); ++i) {
        const CacheRecord& record = records[i];
        const std::string db_key = StoreKey(record.key, record.arch);
        if (record.doubtful == 0 && db.Get(Family::kWanted, db_key).ok()) {
          writes.push_back({Family::kWanted, db_key, std::nullopt});
        }
        if (!lineage.empty()) {
          CF_RETURN_IF_ERROR(AppendLineage(db, db_key + " ", lineage, &writes));
        }
        const Found there = ReadRecord(db, db_key, &counters);
        CF_RETURN_IF_ERROR(there.status);
        const CacheRecord* existing = there.record.get();
        if (existing != nullptr && !existing->Fields().ok()) existing = nullptr;
        const bool left = there.later && stays != Stays::kNone;
        taken.push_back(!left && TakesPlaceOf(record, existing, stays));
        if (!taken.back()) continue;
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

  Status AddLineage(std::string_view key, std::string_view arch,
                    const std::vector<Json>& nodes) override {
    CF_RETURN_IF_ERROR(CheckStoreKey(key, arch));
    if (nodes.empty()) return Status::Ok();
    const std::string prefix = StoreKey(key, arch) + " ";
    return Write([&](const Database& db) -> Result<std::vector<DbWrite>> {
      std::vector<DbWrite> writes;
      CF_RETURN_IF_ERROR(AppendLineage(db, prefix, nodes, &writes));
      return writes;
    });
  }

  Status Delete(std::string_view key, std::string_view arch) override {
    CF_RETURN_IF_ERROR(CheckStoreKey(key, arch));
    const std::string db_key = StoreKey(key, arch);
    return Write([&](const Database& db) -> Result<std::vector<DbWrite>> {
      std::vector<DbWrite> writes{{Family::kWinners, db_key, std::nullopt},
                                  {Family::kNegatives, db_key, std::nullopt}};
      const auto forget = [&](std::string_view node, std::string_view) {
        writes.push_back({Family::kLineage, std::string(node), std::nullopt});
        return true;
      };
      CF_RETURN_IF_ERROR(db.Scan(Family::kLineage, db_key + " ", forget));
      return writes;
    });
  }

  Status ForEach(std::string_view arch,
                 const std::function<bool(const CacheRecord&)>& visit) override {
    // A separate handle, so that `visit` may call this store.
    const auto reader = storage_->OpenReader();
    bool going = true;
    const auto look = [&](std::string_view key, std::string_view bytes) {
      if (!arch.empty() && key.substr(std::min<size_t>(65, key.size())) != arch) return true;
      auto record = CacheRecord::Decode(bytes);
      if (record.ok() && record->Validate().ok() && StoreKey(record->key, record->arch) == key) {
        return going = visit(*record);
      }
      CountCorrupt(1);
      return true;
    };
    Status status = reader.status();
    for (Family family : {Family::kWinners, Family::kNegatives}) {
      if (status.ok() && going) status = (*reader)->Scan(family, "", look);
    }
    if (status.code() == StatusCode::kCorruption) return Status::Corruption(OfDamage(status));
    return status.code() == StatusCode::kNotFound ? Status::Ok() : status;
  }

  Status AddWanted(std::span<const WantedRegion> regions) override {
    CF_ASSIGN_OR_RETURN(std::vector<DbWrite> writes, WantedWrites(regions));
    if (writes.empty()) return Status::Ok();
    return Write([&](const Database&) { return writes; });
  }

  Status PutGraph(std::string_view graph, std::string_view arch, const Json& facts,
                  std::span<const WantedRegion> wanted) override {
    CF_RETURN_IF_ERROR(CheckStoreKey(graph, arch));
    CF_ASSIGN_OR_RETURN(std::vector<DbWrite> writes, WantedWrites(wanted));
    writes.push_back({Family::kGraphs, StoreKey(graph, arch), LenientText(facts)});
    return Write([&](const Database&) { return writes; });
  }

  std::optional<Json> GetGraph(std::string_view graph, std::string_view arch) override {
    ProcessState* state = State();
    std::lock_guard lock(state->mutex);
    Refresh(state);
    if (state->reader == nullptr) return std::nullopt;
    auto text = state->reader->Get(Family::kGraphs, StoreKey(graph, arch));
    if (text.status().code() == StatusCode::kNotFound) return std::nullopt;
    if (text.status().code() == StatusCode::kCorruption) WarnOfDamage(state, text.status());
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
    return Write([db_key = StoreKey(key, arch)](const Database&) {
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
  std::string location() const override { return storage_->location(); }
  Status health() const override {
    ProcessState* state = State();
    std::lock_guard lock(state->mutex);
    Refresh(state);
    return state->health;
  }
  std::vector<std::string> TakeWarnings() override {
    ProcessState* state = State();
    std::lock_guard lock(state->mutex);
    return std::exchange(state->warnings, {});
  }

 private:
  // Appends `nodes` under `prefix`, continuing the existing numbers.
  static Status AppendLineage(const Database& db, const std::string& prefix,
                              const std::vector<Json>& nodes, std::vector<DbWrite>* writes) {
    uint64_t next = 0;
    const auto look = [&](std::string_view db_key, std::string_view) {
      next = ParseInteger<uint64_t>(db_key.substr(prefix.size())).value_or(next) + 1;
      return true;
    };
    CF_RETURN_IF_ERROR(db.Scan(Family::kLineage, prefix, look));
    for (const Json& node : nodes) {
      std::string number = std::to_string(next++);
      number.insert(0, kLineageDigits - std::min(number.size(), kLineageDigits), '0');
      writes->push_back({Family::kLineage, prefix + number, LenientText(node)});
    }
    return Status::Ok();
  }

  ProcessState* State() const { return &state_.Get(); }

  std::string OfDamage(const Status& status) const {
    return "the cache in " + location() + " is damaged (" + status.message() +
           "): some of its kernels are not used. The next write may replace it by an empty one; to "
           "do so now, move its folder db away";
  }
  // REQUIRES: state->mutex is held.
  void WarnOfDamage(ProcessState* state, const Status& status) const {
    if (!std::exchange(state->warned_of_damage, true)) state->warnings.push_back(OfDamage(status));
  }

  // Returns the writes that add the new ones of `regions` to the wanted list. A write opens the
  // database twice, and most compilations have nothing new.
  Result<std::vector<DbWrite>> WantedWrites(std::span<const WantedRegion> regions) {
    std::vector<DbWrite> writes;
    ProcessState* state = State();
    std::lock_guard lock(state->mutex);
    Refresh(state);
    for (const WantedRegion& region : regions) {
      CF_RETURN_IF_ERROR(CheckStoreKey(region.key, region.arch));
      const std::string db_key = StoreKey(region.key, region.arch);
      if (state->reader && state->reader->Get(Family::kWanted, db_key).ok()) continue;
      const Json entry = {{"key", region.key},
                          {"arch", region.arch},
                          {"signature", region.signature},
                          {"first_seen", static_cast<int64_t>(std::time(nullptr))}};
      writes.push_back({Family::kWanted, db_key, LenientText(entry)});
    }
    return writes;
  }

  // Reopens the reader if there was a write since. REQUIRES: state->mutex is held.
  void Refresh(ProcessState* state) const {
    const auto now = std::chrono::steady_clock::now();
    if (state->looked && now - state->looked_at < kLookAgain) return;
    state->looked_at = now;
    const uint64_t generation = storage_->Generation();
    if (state->looked && state->opened_at == generation) return;
    state->looked = true;
    state->opened_at = generation;
    state->health = Status::Ok();
    state->reader.reset();
    state->winners.clear();
    auto reader = storage_->OpenReader();
    if (reader.ok()) {
      state->reader = std::move(reader).value();
      return;
    }
    if (reader.status().code() == StatusCode::kNotFound) return;
    state->health = reader.status();
    if (reader.status().code() == StatusCode::kCorruption) {
      ++state->counters.corrupt;
      state->health = Status::Corruption(OfDamage(reader.status()));
      WarnOfDamage(state, reader.status());
    } else {
      ++state->counters.errors;
      state->warnings.push_back(
          "the cache in " + location() +
          " cannot be read and is treated as empty: " + reader.status().ToString());
    }
  }

  std::vector<Json> ScanJson(Family family, const std::string& prefix) {
    std::vector<Json> values;
    const auto take = [&](std::string_view, std::string_view text) {
      auto json = ParseJson(text);
      if (!json.ok()) {
        CountCorrupt(1);
      } else {
        values.push_back(std::move(json).value());
      }
      return true;
    };
    const auto reader = storage_->OpenReader();
    if (reader.status().code() == StatusCode::kNotFound) return values;
    if (!reader.ok() || !(*reader)->Scan(family, prefix, take).ok()) CountCorrupt(1);
    return values;
  }

  Status Write(const Storage::MakeWrites& make) {
    if (!writable_) return Status::Unsupported(location() + ": opened read-only");
    std::vector<std::string> warnings;
    Status status = storage_->Write(make, &warnings);
    ProcessState* state = State();
    std::lock_guard lock(state->mutex);
    ++(status.ok() ? state->counters.writes : state->counters.errors);
    state->warnings.insert(state->warnings.end(), warnings.begin(), warnings.end());
    state->looked = false;  // sees its own write, even if the generation file is wrong
    return status;
  }

  const std::unique_ptr<Storage> storage_;
  const bool writable_;
  mutable OfProcess<ProcessState> state_;
};

}  // namespace

std::unique_ptr<KernelStore> MakeKernelStore(std::unique_ptr<Storage> storage, bool writable) {
  return std::make_unique<DatabaseStore>(std::move(storage), writable);
}

Result<std::unique_ptr<KernelStore>> OpenRocksKernelStore(const std::string& path, bool writable) {
  auto folder = std::make_unique<RocksFolder>(path);
  CF_RETURN_IF_ERROR(folder->Check());
  std::unique_ptr<KernelStore> store = MakeKernelStore(std::move(folder), writable);
  const Status health = store->health();
  if (health.ok() || health.code() == StatusCode::kCorruption) return store;
  return health;
}

}  // namespace cudaforge
