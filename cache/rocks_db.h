// RocksDb: one open handle on our RocksDB database, with the settings and the error mapping that
// the store relies on. Only rocks_db.cc includes RocksDB's headers. Private to cache/.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/database.h"

namespace cudaforge {

// Of the database as a whole, stored as text under meta/"format".
inline constexpr int kDatabaseFormat = 1;

// Errors of all calls: Database's, and kUnsupported (made by a newer version). Not thread-safe. In
// a forked child the parent's handle must be neither used nor destroyed. A fork in another thread
// waits while a database is made, opened or closed, and while one is open for writing: a writer is
// destroyed by the thread that opened it, which must not fork before (base/fork.h,
// NoForkMeanwhile).
class RocksDb final : public Database {
 public:
  // Makes an empty database in `folder`, which must not exist.
  static Status Create(const std::string& folder);
  // A frozen view, also beside a live writer; writes no file at all.
  static Result<std::unique_ptr<RocksDb>> OpenReader(const std::string& folder);
  // REQUIRES: our own lock is held, so that no other process has the database open for writing.
  static Result<std::unique_ptr<RocksDb>> OpenWriter(const std::string& folder);
  ~RocksDb() override;
  RocksDb(const RocksDb&) = delete;
  RocksDb& operator=(const RocksDb&) = delete;

  Result<std::string> Get(Family family, const std::string& key) const override;
  Status Scan(Family family, const std::string& prefix,
              const std::function<bool(std::string_view key, std::string_view value)>& visit)
      const override;
  // All or nothing; on the disk when it returns ok. Writer only.
  Status Write(const std::vector<DbWrite>& writes);

 private:
  struct Impl;
  explicit RocksDb(std::unique_ptr<Impl> impl);
  static Result<std::unique_ptr<RocksDb>> Open(const std::string& folder, bool writer);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cudaforge
