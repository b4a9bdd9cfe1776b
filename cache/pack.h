// Packs: one checksummed file with the records of one or all archs, for another machine. Holds
// kernels and negative entries, so that the other machine forges neither. FORMAT.md has the byte
// format.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/kernel_store.h"

namespace cudaforge {

struct PackSummary {
  int64_t exported = 0, imported = 0;  // kernels
  int64_t without_winner = 0;          // negative entries, exported or imported
  int64_t kept_existing = 0, rejected = 0;
  std::vector<std::string> problems;  // one line for each rejected record
};

// Writes every record of `arch` (empty: of all) that is not doubtful to `file`, atomically. Writes
// no file if there is no record.
Result<PackSummary> ExportPack(KernelStore& store, const std::string& file, std::string_view arch);

// The result for one record of a pack.
enum class Imported { kStored, kKeptExisting, kRejected };
struct ImportHooks {
  // Accepts or rejects each record before it is stored. May replace its binary by one built here.
  // Its error message goes into `problems`.
  std::function<Status(CacheRecord*)> accept;
  // Progress: called for each kernel with the first digits of its key, and for each rejected record
  // with its problem.
  std::function<void(Imported, const std::string&)> tell;
};

// Stores the records of a pack, or of a source pack (source_pack.h) if `path` is a folder. Stores
// each kernel when it is accepted, so that an interrupted import keeps them; negative entries last.
// Existing records stay by Stays::kUnlessMore; with `replace` kernels replace them. A source pack
// has no binaries: `accept` must build them. Errors: kNotFound or kIoError (the file), kCorruption
// (no pack, or damaged: nothing is imported), kUnsupported (a newer format), and PutMany's.
Result<PackSummary> ImportPack(KernelStore& store, const std::string& path,
                               const ImportHooks& hooks = {}, bool replace = false);

}  // namespace cudaforge
