// What a KernelStore keeps its bytes in: a database, on the disk (rocks_folder.h) or in memory.
// Private to cache/.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/kernel_store.h"

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

struct DbWrite {
  Family family = Family::kWinners;
  std::string key;
  std::optional<std::string> value;  // nullopt deletes the key
};

// A frozen view. Errors: kCorruption (the database is damaged), kIoError, kNotFound (Get only).
class Database {
 public:
  virtual ~Database() = default;
  virtual Result<std::string> Get(Family family, const std::string& key) const = 0;
  // Pairs whose key starts with `prefix`, in order, until `visit` returns false.
  virtual Status Scan(
      Family family, const std::string& prefix,
      const std::function<bool(std::string_view key, std::string_view value)>& visit) const = 0;
};

// Thread-safe.
class Storage {
 public:
  virtual ~Storage() = default;
  // 0 before the first write; changes with every write of any process.
  virtual uint64_t Generation() const = 0;
  // kNotFound when there is nothing yet.
  virtual Result<std::shared_ptr<const Database>> OpenReader() const = 0;
  // Writes what `make` makes of what is there, all or nothing; no other writer comes between. A
  // damaged database, also one that `make` says kCorruption of, is moved aside first, and `make`
  // called again on an empty one; `warnings` gets a line for it.
  using MakeWrites = std::function<Result<std::vector<DbWrite>>(const Database& db)>;
  virtual Status Write(const MakeWrites& make, std::vector<std::string>* warnings) = 0;
  // As KernelStore's.
  virtual std::string location() const = 0;
};

// The store on a storage; `writable` false: never writes.
std::unique_ptr<KernelStore> MakeKernelStore(std::unique_ptr<Storage> storage, bool writable);

}  // namespace cudaforge
