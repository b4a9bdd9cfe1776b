// RocksFolder: the folder of one cache on the disk, and the rules by which processes share it.
// Holds no handle and no state of its own: thread-safe. Private to cache/.
// FORMAT.md says what lies in it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cache/rocks_db.h"

namespace cudaforge {

class RocksFolder {
 public:
  explicit RocksFolder(std::string path) : path_(std::move(path)), db_path_(path_ + "/db") {}

  const std::string& path() const { return path_; }
  // kIoError when something that is no folder is in the way or the folder cannot be entered; ok
  // when nothing is there.
  Status Check() const;
  bool HasDatabase() const;
  // 0 before the first write; changes with every write of any process.
  uint64_t Generation() const;

  // kNotFound when there is no database.
  Result<std::unique_ptr<RocksDb>> OpenReader() const;

  // One session of the writer: lock, open, `make` from what is there, write, flush, close, next
  // generation. A damaged database is moved aside first and `make` called again on an empty one;
  // `warnings` gets a line for it. A fork in another thread waits until the database is closed:
  // `make` must not wait for that thread, nor for what HoldAcrossForks was given. Errors: kIoError,
  // kTimeout (another process kept the lock), kUnsupported (a newer version's database, left as it
  // is).
  using MakeWrites = std::function<std::vector<DbWrite>(const RocksDb& db)>;
  Status Write(const MakeWrites& make, std::vector<std::string>* warnings) const;

 private:
  Status Session(const MakeWrites& make) const;
  Status CreateFresh() const;
  Result<std::string> MoveAside() const;
  Status NextGeneration() const;

  std::string path_;
  std::string db_path_;
};

}  // namespace cudaforge
