// KernelStore: where kernels, negative entries, wanted signatures and lineage live. Thread-safe;
// several processes may use one folder. What cannot be read or fails its check is a miss and a
// counter, never an exception.
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

// A region that was asked for and is not known.
struct WantedRegion {
  std::string key, arch;
  Json signature;
};

// Which of two records of a region is kept; the first rule that applies.
// 1. The old one is doubtful, not JudgedAlike, or its evidence cannot be read: the new one.
// 2. The new one is doubtful: the old one, unless that WantsTime().
// 3. Then as this says:
enum class Stays {
  // - The old one serves no compiled graphs: the new one, even without a kernel.
  // - Both have the same kernel: the old one.
  // - Otherwise the one that serves compiled graphs with the larger lower bound of the speed-up.
  kBetter,
  // The old one, unless the new one has a kernel and the old one none, or it serves compiled graphs
  // and the old one does not, or the old one alone WantsTime().
  kUnlessMore,
  // The new one, before all other rules.
  kNone
};

class KernelStore {
 public:
  virtual ~KernelStore() = default;

  // The record for (key, arch), of whatever kind; null on a miss, also when the stored bytes are
  // damaged. Its evidence is checked where it is read (CacheRecord::Fields).
  virtual std::shared_ptr<const CacheRecord> Get(std::string_view key, std::string_view arch) = 0;
  // Stores durably, all or nothing; of several records of one region, the last that `stays` lets.
  // `stored`, when given, tells for each record whether it took the place of what was there; a
  // record of a later format stays. A region with a record that is not doubtful leaves the wanted
  // list in the same write. Errors: kInvalidArgument and kCorruption (CacheRecord::Validate),
  // kIoError (a full disk, a read-only folder: nothing changed), kTimeout (the lock), kUnsupported
  // (opened read-only, or made by a newer version).
  // `lineage` is of one record, what was tried for its region, oldest first: one JSON object a
  // candidate, added in the same write to what earlier forgings tried.
  virtual Status PutMany(std::span<const CacheRecord> records, Stays stays = Stays::kBetter,
                         std::vector<bool>* stored = nullptr,
                         const std::vector<Json>& lineage = {}) = 0;
  Status Put(const CacheRecord& record, bool replace = false) {
    return PutMany({&record, 1}, replace ? Stays::kNone : Stays::kBetter);
  }
  // Put with its lineage. `stored`: whether the record took the place of what was there.
  Status Conclude(const CacheRecord& record, const std::vector<Json>& lineage,
                  bool* stored = nullptr) {
    std::vector<bool> taken;
    CF_RETURN_IF_ERROR(PutMany({&record, 1}, Stays::kBetter, &taken, lineage));
    if (stored != nullptr) *stored = taken[0];
    return Status::Ok();
  }
  // Forgets the record and its lineage, whether they can be read or not.
  virtual Status Delete(std::string_view key, std::string_view arch) = 0;
  // Every record that can be read, in key order, those with kernels before negative entries; stops
  // when `visit` returns false. `arch` empty: all. What is damaged, or of another record format, is
  // passed over and counted in `corrupt`. Errors: those of opening the database; kCorruption, after
  // the records before the damage.
  virtual Status ForEach(std::string_view arch,
                         const std::function<bool(const CacheRecord&)>& visit) = 0;

  // Regions that missed and were not forged: {"key", "arch", "signature", "first_seen"}. Adding
  // writes those that are not on the list yet, at once; it touches no file when all are.
  virtual Status AddWanted(std::span<const WantedRegion> regions) = 0;
  virtual std::vector<Json> Wanted(std::string_view arch) = 0;
  // Takes the region off that list, where it is on it. Errors as PutMany's.
  virtual Status RemoveWanted(std::string_view key, std::string_view arch) = 0;

  // Adds to what was tried for (key, arch), whether there is a record or not: JSON objects, oldest
  // first, durably and all or nothing. Errors as PutMany's.
  virtual Status AddLineage(std::string_view key, std::string_view arch,
                            const std::vector<Json>& nodes) = 0;
  // What was tried for (key, arch), oldest first.
  virtual std::vector<Json> Lineage(std::string_view key, std::string_view arch) = 0;

  // What is known of a whole graph: a JSON object. `graph` has the form of a key and names the
  // graph and the kind of knowledge; GetGraph gives nullopt when there is none, or it is damaged.
  // `wanted` is added to the wanted list in the same write.
  virtual Status PutGraph(std::string_view graph, std::string_view arch, const Json& facts,
                          std::span<const WantedRegion> wanted) = 0;
  virtual std::optional<Json> GetGraph(std::string_view graph, std::string_view arch) = 0;

  virtual StoreCounters counters() const = 0;
  // Adds to `corrupt`: records that were read whole and proved damaged where they were used.
  virtual void CountCorrupt(int64_t records) = 0;
  // The folder; "memory" where nothing is kept.
  virtual std::string location() const = 0;
  // Ok, or why every read is a miss at present ("the database is damaged: ...").
  virtual Status health() const = 0;
  // What the user should be told, one line each; a line is given once ("... was damaged; moved to
  // ..."; "... is damaged", after a Get or GetGraph that met it).
  virtual std::vector<std::string> TakeWarnings() = 0;
};

std::unique_ptr<KernelStore> MakeMemoryKernelStore();
// A RocksDB database in folder `path`/db, created on first write. A damaged database opens too:
// what cannot be read is a miss, see health(); the first write that meets the damage moves it to
// `path`/db.damaged-N and starts a fresh one.
// Errors: kIoError (cannot be read; a plain file there is left untouched), kUnsupported (made by a
// newer version). `writable` false: never writes.
Result<std::unique_ptr<KernelStore>> OpenRocksKernelStore(const std::string& path, bool writable);
// A region's lineage without the nodes that one with the same session and id replaces: those kept
// before their candidate was run, and those whose candidate was refused when it was run again.
std::vector<Json> SettledNodes(const std::vector<Json>& lineage);
// Of the library that is linked: "7.8.3".
std::string RocksDbVersion();

}  // namespace cudaforge
