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

// Decides on each record before it is stored, and may replace its binary by one that was built
// here; its message becomes the record's line in `problems`.
using AcceptRecord = std::function<Status(CacheRecord*)>;

// Stores the records of a pack, or of a source pack (source_pack.h) where `path` is a folder, each
// kernel as soon as it is accepted, so that one who interrupts it keeps what was done. A winner
// that is there and that the same torch and verifier judged stays, whatever speed-up the pack
// claims, unless `replace`, and so does one that serves eager calls alone, unless the pack's serves
// compiled graphs.
// A kernel takes the place of a negative entry, never the other way round. Those of a source pack
// have no binary until `accept` builds it. Errors: kNotFound or kIoError (the file), kCorruption
// (not a pack, cut short, or changed: nothing is imported), kUnsupported (a newer format), and
// those of KernelStore::PutMany.
Result<PackSummary> ImportPack(KernelStore& store, const std::string& path,
                               const AcceptRecord& accept = nullptr, bool replace = false);

}  // namespace cudaforge
