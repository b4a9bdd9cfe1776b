// RocksDb: one open handle on our RocksDB database, with the settings and the error mapping that
// the store relies on. Only rocks_db.cc and rocks_env.cc include RocksDB's headers. Private to
// cache/.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cudaforge {

// Column families; the names are in FORMAT.md. Do not renumber. One that an older version did not
// have is empty for a reader and made by the next writer.
enum class Family {
  kWinners = 0,
  kNegatives = 1,
  kWanted = 2,
  kLineage = 3,
  kMeta = 4,
  kGraphs = 5
};
inline constexpr int kFamilies = static_cast<int>(Family::kGraphs) + 1;

// Of the database as a whole, stored as text under meta/"format".
inline constexpr int kDatabaseFormat = 1;

struct DbWrite {
  Family family = Family::kWinners;
  std::string key;
  std::optional<std::string> value;  // nullopt deletes the key
};

// Errors of all calls: kCorruption (the database is damaged), kUnsupported (made by a newer
// version), kIoError (the operating system refused), kNotFound (Get only). Not thread-safe. In a
// forked child the parent's handle must be neither used nor destroyed. A fork in another thread
// waits while a database is made, opened or closed, and while one is open for writing: a writer is
// destroyed by the thread that opened it, which must not fork before (base/fork.h,
// NoForkMeanwhile).
class RocksDb {
 public:
  // Makes an empty database in `folder`, which must not exist.
  static Status Create(const std::string& folder);
  // A frozen view, also beside a live writer; writes no file at all.
  static Result<std::unique_ptr<RocksDb>> OpenReader(const std::string& folder);
  // REQUIRES: our own lock is held, so that no other process has the database open for writing.
  static Result<std::unique_ptr<RocksDb>> OpenWriter(const std::string& folder);
  ~RocksDb();
  RocksDb(const RocksDb&) = delete;
  RocksDb& operator=(const RocksDb&) = delete;

  Result<std::string> Get(Family family, const std::string& key) const;
  // Pairs whose key starts with `prefix`, in order (in a damaged database those last that it takes
  // more than one walk to find), until `visit` returns false. What lies between the first damaged
  // block of a table and its last, and the pair after that, is passed over and no error: `lost`,
  // where given, grows by the number of such pairs, by at least 1 where it is not known.
  Status Scan(Family family, const std::string& prefix,
              const std::function<bool(std::string_view key, std::string_view value)>& visit,
              int64_t* lost = nullptr) const;
  // All or nothing; on the disk when it returns ok. Writer only.
  Status Write(const std::vector<DbWrite>& writes);

 private:
  struct Impl;
  explicit RocksDb(std::unique_ptr<Impl> impl);
  static Result<std::unique_ptr<RocksDb>> Open(const std::string& folder, bool writer);
  // How many pairs each table was written with, by its number; 0 stands for what is in no table. A
  // key that was written again, or deleted, counts in each of its tables.
  using PairsByTable = std::map<uint64_t, uint64_t>;
  PairsByTable TablesOf(Family family) const;
  // The keys that start with `prefix` and can be read, of every table by itself: a damaged block
  // ends a walk over all tables at once, though the others are sound. Also gives keys that are
  // deleted by now. `lost`: see Scan.
  Status Salvage(Family family, const PairsByTable& tables, const std::string& prefix,
                 std::set<std::string>* keys, int64_t* lost) const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cudaforge
