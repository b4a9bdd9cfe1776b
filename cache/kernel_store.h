// KernelStore: where winners, negative entries, wanted signatures and lineage live. Thread-safe; several processes may
// use one folder. What cannot be read or fails its check is a miss and a counter, never an exception.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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

class KernelStore {
 public:
  virtual ~KernelStore() = default;

  // The record for (key, arch), winner or negative; nullopt on a miss, also when the stored bytes are damaged.
  virtual std::optional<CacheRecord> Get(std::string_view key, std::string_view arch) = 0;
  // Stores durably. A winner replaces a negative entry; between two winners the one with the larger lower bound of
  // the speed-up stays; a negative entry never replaces a winner unless `replace`.
  virtual Status Put(const CacheRecord& record, bool replace = false) = 0;
  virtual Status Delete(std::string_view key, std::string_view arch) = 0;
  // Every intact record, in key order; stops when `visit` returns false. `arch` empty: all.
  virtual Status ForEach(std::string_view arch, const std::function<bool(const CacheRecord&)>& visit) = 0;

  // Signatures that missed and were not forged: {"signature", "count", "last_seen"} under (key, arch).
  virtual Status AddWanted(std::string_view key, std::string_view arch, const Json& signature) = 0;
  virtual Status RemoveWanted(std::string_view key, std::string_view arch) = 0;
  virtual std::vector<Json> Wanted(std::string_view arch) = 0;

  // What was tried for (key, arch), oldest first: one JSON object a candidate.
  virtual Status AppendLineage(std::string_view key, std::string_view arch, const Json& node) = 0;
  virtual std::vector<Json> Lineage(std::string_view key, std::string_view arch) = 0;

  // Changes whenever any process has written; cheap.
  virtual uint64_t Generation() = 0;
  virtual StoreCounters counters() const = 0;
  virtual std::string location() const = 0;
};

std::unique_ptr<KernelStore> MakeMemoryKernelStore();
// A RocksDB database in folder `path`, created on first write. Errors: kIoError (cannot be created or read; a plain
// file there is left untouched), kUnsupported (made by a newer version). `writable` false: never writes.
Result<std::unique_ptr<KernelStore>> OpenRocksKernelStore(const std::string& path, bool writable);

// Packs: winners of one or all archs in one checksummed file, for another machine. See FORMAT.md.
struct PackSummary {
  int64_t exported = 0, imported = 0, kept_existing = 0, rejected = 0;
  std::vector<std::string> problems;  // one line for each rejected record
};
Result<PackSummary> ExportPack(KernelStore& store, const std::string& file, std::string_view arch);
Result<PackSummary> ImportPack(KernelStore& store, const std::string& file);

}  // namespace cudaforge
