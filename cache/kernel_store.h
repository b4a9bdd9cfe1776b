// KernelStore: holds kernels, negative entries, wanted regions and lineage. Thread-safe. Several
// processes may use one folder. Unreadable data is a miss and is counted, never an exception.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "cache/record.h"

namespace cudaforge {

struct StoreCounters {
  int64_t reads = 0, hits = 0, writes = 0, corrupt = 0, errors = 0;
};

// A region that was requested and has no record.
struct WantedRegion {
  std::string key, arch;
  Json signature;
};

// Which of two records of a region is kept; the first rule that applies.
// 1. The old one is doubtful, not JudgedAlike, or unreadable: the new one.
// 2. The new one is doubtful: the old one, unless that RanOutOfTime().
// 3. Otherwise as this enum says:
enum class Stays {
  // - The old one serves no compiled graphs: the new one, even without a kernel.
  // - Both have the same kernel: the old one.
  // - Otherwise the one that serves compiled graphs with the larger lower bound of the speed-up.
  kBetter,
  // The old one, except that the new one is kept if
  // - only the new one has a kernel
  // - only the new one serves compiled graphs
  // - only the old one RanOutOfTime()
  kUnlessMore,
  // The new one, before all other rules.
  kNone
};

class KernelStore {
 public:
  virtual ~KernelStore() = default;

  // Returns the record for (key, arch), of any kind. Null on a miss, also if the stored bytes are
  // damaged. The record's evidence is checked later (CacheRecord::Fields).
  virtual std::shared_ptr<const CacheRecord> Get(std::string_view key, std::string_view arch) = 0;
  // Stores records durably, all or nothing. Of several records of one region, the last that `stays`
  // allows is kept; one of a later format is never replaced. `stored`: for each, whether it
  // replaced the old one. Regions with a record that is not doubtful leave the wanted list.
  // `lineage`: attempts for the one record's region, oldest first, appended. kInvalidArgument,
  // kCorruption: see CacheRecord::Validate. kIoError: full disk, read-only folder; nothing changed.
  // kTimeout: the lock. kUnsupported: opened read-only, or made by a newer version.
  virtual Status PutMany(std::span<const CacheRecord> records, Stays stays = Stays::kBetter,
                         std::vector<bool>* stored = nullptr,
                         const std::vector<Json>& lineage = {}) = 0;
  Status Put(const CacheRecord& record, bool replace = false) {
    return PutMany({&record, 1}, replace ? Stays::kNone : Stays::kBetter);
  }
  // PutMany of one record with its lineage. `stored`: whether it replaced the existing one.
  Status Conclude(const CacheRecord& record, const std::vector<Json>& lineage,
                  bool* stored = nullptr) {
    std::vector<bool> taken;
    CF_RETURN_IF_ERROR(PutMany({&record, 1}, Stays::kBetter, &taken, lineage));
    if (stored != nullptr) *stored = taken[0];
    return Status::Ok();
  }
  // Deletes the record and its lineage, even if they cannot be read.
  virtual Status Delete(std::string_view key, std::string_view arch) = 0;
  // Visits every readable record in key order, kernels before negative entries, until `visit`
  // returns false. `arch` empty: all. Damaged records and other record formats are skipped and
  // counted in `corrupt`. Errors: those of opening the database; kCorruption, after the records
  // before the damage.
  virtual Status ForEach(std::string_view arch,
                         const std::function<bool(const CacheRecord&)>& visit) = 0;

  // Adds regions that missed: {"key", "arch", "signature", "first_seen"}. Durable. Writes only new
  // ones; touches no file if all are on the list.
  virtual Status AddWanted(std::span<const WantedRegion> regions) = 0;
  virtual std::vector<Json> Wanted(std::string_view arch) = 0;
  // Removes the region from the wanted list, if it is there. Errors as PutMany's.
  virtual Status RemoveWanted(std::string_view key, std::string_view arch) = 0;

  // Appends to the lineage of (key, arch), with or without a record: JSON objects, oldest first.
  // Durable, all or nothing. Errors as PutMany's.
  virtual Status AddLineage(std::string_view key, std::string_view arch,
                            const std::vector<Json>& nodes) = 0;
  // Returns the attempts for (key, arch), oldest first.
  virtual std::vector<Json> Lineage(std::string_view key, std::string_view arch) = 0;

  // Facts about a whole graph: a JSON object. `graph` has the form of a key, and names the graph
  // and the kind of facts. GetGraph returns nullopt if there are none, or they are damaged. The
  // same write adds `wanted` to the wanted list.
  virtual Status PutGraph(std::string_view graph, std::string_view arch, const Json& facts,
                          std::span<const WantedRegion> wanted) = 0;
  virtual std::optional<Json> GetGraph(std::string_view graph, std::string_view arch) = 0;

  virtual StoreCounters counters() const = 0;
  // Adds to `corrupt`: records that proved damaged when they were used.
  virtual void CountCorrupt(int64_t records) = 0;
  // The folder; "memory" if nothing is on disk.
  virtual std::string location() const = 0;
  // Ok, or why every read is currently a miss ("the database is damaged: ...").
  virtual Status health() const = 0;
  // Returns warnings for the user, one line each, each line once ("... was damaged; moved to ...";
  // "... is damaged", after a Get or GetGraph found it).
  virtual std::vector<std::string> TakeWarnings() = 0;
};

std::unique_ptr<KernelStore> MakeMemoryKernelStore();
// Opens a RocksDB database in `path`/db, which the first write creates. A damaged database opens
// too: reads are misses (see health()), and the first write moves it to `path`/db.damaged-N and
// starts a new one. Errors: kIoError (unreadable, or a plain file is there), kUnsupported (made by
// a newer version). `writable` false: never writes.
Result<std::unique_ptr<KernelStore>> OpenRocksKernelStore(const std::string& path, bool writable);
// Returns the lineage without replaced nodes: those that were written before their candidate ran,
// and those whose candidate was refused in a second run. A node replaces earlier ones with its
// session and id.
std::vector<Json> SettledNodes(const std::vector<Json>& lineage);
// The version of the linked library: "7.8.3".
std::string RocksDbVersion();

}  // namespace cudaforge
