// Packs: the records of one or all archs in one checksummed file, for another machine: the kernels,
// and the regions for which there is none, so that nothing is forged again there. The byte format
// is in FORMAT.md.
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

// Writes every record that is not doubtful (of `arch`; empty: of all) to `file`, atomically; no
// file without one.
Result<PackSummary> ExportPack(KernelStore& store, const std::string& file, std::string_view arch);

// What became of a record of a pack.
enum class Imported { kStored, kKeptExisting, kRejected };
struct ImportHooks {
  // Decides on each record before it is stored, and may replace its binary by one that was built
  // here; its message becomes the record's line in `problems`.
  std::function<Status(CacheRecord*)> accept;
  // Called of each kernel with the first digits of its key, and of each rejected record with its
  // line, as soon as it is certain.
  std::function<void(Imported, const std::string&)> tell;
};

// Stores the records of a pack, or of a source pack (source_pack.h) where `path` is a folder, each
// kernel as soon as it is accepted, so that one who interrupts it keeps what was done, and those
// without at the end. What is there stays by Stays::kUnlessMore, whatever speed-up the pack claims;
// with `replace` kernels replace it. Those of a source pack have no binary until `accept` builds
// it. Errors: kNotFound or kIoError (the file), kCorruption (not a pack, cut short, or changed:
// nothing is imported), kUnsupported (a newer format), and those of KernelStore::PutMany.
Result<PackSummary> ImportPack(KernelStore& store, const std::string& path,
                               const ImportHooks& hooks = {}, bool replace = false);

}  // namespace cudaforge
