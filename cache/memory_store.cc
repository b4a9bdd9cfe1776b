#include <map>
#include <mutex>

#include "cache/kernel_store.h"
#include "cache/store_rules.h"

namespace cudaforge {
namespace {

class MemoryKernelStore final : public KernelStore {
 public:
  std::shared_ptr<const CacheRecord> Get(std::string_view key, std::string_view arch) override {
    std::lock_guard lock(mutex_);
    ++counters_.reads;
    auto found = records_.find(StoreKey(key, arch));
    if (found == records_.end()) return nullptr;
    ++counters_.hits;
    return found->second;
  }

  Status PutMany(std::span<const CacheRecord> records, bool replace,
                 std::vector<bool>* stored) override {
    std::lock_guard lock(mutex_);
    return PutLocked(records, replace, stored);
  }

  Status Conclude(const CacheRecord& record, const std::vector<Json>& lineage,
                  bool* stored) override {
    std::vector<bool> taken;
    std::lock_guard lock(mutex_);
    CF_RETURN_IF_ERROR(PutLocked({&record, 1}, false, &taken));
    if (stored != nullptr) *stored = taken[0];
    Append(StoreKey(record.key, record.arch), lineage);
    return Status::Ok();
  }

  Status AddLineage(std::string_view key, std::string_view arch,
                    const std::vector<Json>& nodes) override {
    CF_RETURN_IF_ERROR(CheckStoreKey(key, arch));
    if (nodes.empty()) return Status::Ok();
    std::lock_guard lock(mutex_);
    Append(StoreKey(key, arch), nodes);
    return Wrote();
  }

  Status Delete(std::string_view key, std::string_view arch) override {
    CF_RETURN_IF_ERROR(CheckStoreKey(key, arch));
    std::lock_guard lock(mutex_);
    records_.erase(StoreKey(key, arch));
    lineage_.erase(StoreKey(key, arch));
    return Wrote();
  }

  Status ForEach(std::string_view arch,
                 const std::function<bool(const CacheRecord&)>& visit) override {
    std::vector<std::shared_ptr<const CacheRecord>> found;  // `visit` may call back into this store
    {
      std::lock_guard lock(mutex_);
      for (const bool kernel : {true, false}) {
        for (const auto& [key, record] : records_) {
          if (record->has_kernel() == kernel && (arch.empty() || record->arch == arch)) {
            found.push_back(record);
          }
        }
      }
    }
    for (const auto& record : found) {
      if (!visit(*record)) break;
    }
    return Status::Ok();
  }

  Status AddWanted(std::span<const WantedRegion> regions) override {
    for (const WantedRegion& region : regions) {
      CF_RETURN_IF_ERROR(CheckStoreKey(region.key, region.arch));
    }
    std::lock_guard lock(mutex_);
    for (const WantedRegion& region : regions) {
      wanted_.try_emplace(StoreKey(region.key, region.arch), WantedEntry(region));
    }
    return Wrote();
  }

  Status PutGraph(std::string_view graph, std::string_view arch, const Json& facts,
                  std::span<const WantedRegion> wanted) override {
    CF_RETURN_IF_ERROR(CheckStoreKey(graph, arch));
    CF_RETURN_IF_ERROR(AddWanted(wanted));
    std::lock_guard lock(mutex_);
    graphs_[StoreKey(graph, arch)] = facts;
    return Wrote();
  }

  std::optional<Json> GetGraph(std::string_view graph, std::string_view arch) override {
    std::lock_guard lock(mutex_);
    auto it = graphs_.find(StoreKey(graph, arch));
    return it == graphs_.end() ? std::nullopt : std::optional<Json>(it->second);
  }

  std::vector<Json> Wanted(std::string_view arch) override {
    std::lock_guard lock(mutex_);
    std::vector<Json> entries;
    for (const auto& [key, entry] : wanted_) {
      if (arch.empty() || entry["arch"] == arch) entries.push_back(entry);
    }
    return entries;
  }

  Status RemoveWanted(std::string_view key, std::string_view arch) override {
    CF_RETURN_IF_ERROR(CheckStoreKey(key, arch));
    std::lock_guard lock(mutex_);
    wanted_.erase(StoreKey(key, arch));
    return Wrote();
  }

  std::vector<Json> Lineage(std::string_view key, std::string_view arch) override {
    std::lock_guard lock(mutex_);
    auto found = lineage_.find(StoreKey(key, arch));
    return found == lineage_.end() ? std::vector<Json>() : found->second;
  }

  StoreCounters counters() const override {
    std::lock_guard lock(mutex_);
    return counters_;
  }
  void CountCorrupt(int64_t records) override {
    std::lock_guard lock(mutex_);
    counters_.corrupt += records;
  }
  std::string location() const override { return "memory"; }
  Status health() const override { return Status::Ok(); }
  std::vector<std::string> TakeWarnings() override { return {}; }

 private:
  // REQUIRES: mutex_ is held.
  Status PutLocked(std::span<const CacheRecord> records, bool replace, std::vector<bool>* stored) {
    CF_ASSIGN_OR_RETURN(const std::vector<std::string> bytes, StorableBytes(records));
    if (stored != nullptr) stored->clear();
    for (size_t i = 0; i < records.size(); ++i) {
      const CacheRecord& record = records[i];
      const std::string key = StoreKey(record.key, record.arch);
      auto found = records_.find(key);
      const bool take =
          TakesPlaceOf(record, found == records_.end() ? nullptr : found->second.get(), replace);
      if (take) {  // what comes back is what a database would give
        CF_ASSIGN_OR_RETURN(CacheRecord copy, CacheRecord::Decode(bytes[i]));
        records_[key] = std::make_shared<const CacheRecord>(std::move(copy));
      }
      if (stored != nullptr) stored->push_back(take);
      if (record.doubtful == 0) wanted_.erase(key);
    }
    return Wrote();
  }

  // REQUIRES: mutex_ is held.
  void Append(const std::string& key, const std::vector<Json>& nodes) {
    std::vector<Json>& tried = lineage_[key];
    tried.insert(tried.end(), nodes.begin(), nodes.end());
  }
  Status Wrote() {
    ++counters_.writes;
    return Status::Ok();
  }

  mutable std::mutex mutex_;
  StoreCounters counters_;
  std::map<std::string, std::shared_ptr<const CacheRecord>> records_;
  std::map<std::string, Json> wanted_;
  std::map<std::string, Json> graphs_;
  std::map<std::string, std::vector<Json>> lineage_;
};

}  // namespace

std::unique_ptr<KernelStore> MakeMemoryKernelStore() {
  return std::make_unique<MemoryKernelStore>();
}

}  // namespace cudaforge
