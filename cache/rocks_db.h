// RocksDb: an open handle on our RocksDB database, with our settings and error codes. Only
// rocks_db.cc includes RocksDB's headers. Private to cache/.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/database.h"

namespace cudaforge {

// The database's format, stored as text under meta/"format".
inline constexpr int kDatabaseFormat = 1;

// Errors: Database's, and kUnsupported (made by a newer version). Not thread-safe. A forked child
// must neither use nor destroy its parent's handle. Forks in other threads wait while a database is
// created, opened, closed or open for writing (base/fork.h, NoForkMeanwhile). The thread that
// opened a writer must destroy it, and not fork before.
class RocksDb final : public Database {
 public:
  // Creates an empty database in `folder`, which must not exist.
  static Status Create(const std::string& folder);
  // A snapshot, also while another process writes; writes no file at all.
  static Result<std::unique_ptr<RocksDb>> OpenReader(const std::string& folder);
  // REQUIRES: our lock is held, so that no other process writes.
  static Result<std::unique_ptr<RocksDb>> OpenWriter(const std::string& folder);
  ~RocksDb() override;
  RocksDb(const RocksDb&) = delete;
  RocksDb& operator=(const RocksDb&) = delete;

  Result<std::string> Get(Family family, const std::string& key) const override;
  Status Scan(Family family, const std::string& prefix,
              const std::function<bool(std::string_view key, std::string_view value)>& visit)
      const override;
  // All or nothing; on disk when it returns ok. Writer only.
  Status Write(const std::vector<DbWrite>& writes);

 private:
  struct Impl;
  explicit RocksDb(std::unique_ptr<Impl> impl);
  static Result<std::unique_ptr<RocksDb>> Open(const std::string& folder, bool writer);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cudaforge
