// RocksFolder: the folder of one cache on disk, and the rules by which processes share it. Holds no
// handle and no state. FORMAT.md lists the files. Private to cache/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cache/rocks_db.h"

namespace cudaforge {

class RocksFolder final : public Storage {
 public:
  explicit RocksFolder(std::string path) : path_(std::move(path)), db_path_(path_ + "/db") {}

  // kIoError: not a folder, or it cannot be entered. Ok if nothing is there.
  Status Check() const;
  uint64_t Generation() const override;
  Result<std::shared_ptr<const Database>> OpenReader() const override;
  // One session of the writer: lock, open, write, flush, close, next generation. Forks in other
  // threads wait until it ends. So `make` must not wait for them or for a mutex of
  // HoldAcrossForks. Errors: kIoError, kTimeout (another process kept the lock), kUnsupported (a
  // newer version's database).
  Status Write(const MakeWrites& make, std::vector<std::string>* warnings) override;
  std::string location() const override { return path_; }

 private:
  Status Session(const MakeWrites& make) const;
  Status CreateFresh() const;
  Result<std::string> MoveAside() const;
  Status NextGeneration() const;

  std::string path_;
  std::string db_path_;
};

}  // namespace cudaforge
