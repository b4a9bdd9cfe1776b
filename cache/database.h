// The database under a KernelStore: on disk (rocks_folder.h) or in memory. Private to cache/.
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

// Column families; FORMAT.md lists their names. Do not renumber. A family that an older version did
// not have reads as empty; the next writer creates it.
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

// A snapshot. Errors: kCorruption (the database is damaged), kIoError, kNotFound (only from Get).
class Database {
 public:
  virtual ~Database() = default;
  virtual Result<std::string> Get(Family family, const std::string& key) const = 0;
  // Visits pairs whose key starts with `prefix`, in order, until `visit` returns false.
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
  // kNotFound if there is no database yet.
  virtual Result<std::shared_ptr<const Database>> OpenReader() const = 0;
  // Writes what `make` returns for the current contents, all or nothing. No other writer runs in
  // between. A damaged database (also if `make` returns kCorruption) is moved aside, with a line in
  // `warnings`. Then `make` runs a second time, on an empty one.
  using MakeWrites = std::function<Result<std::vector<DbWrite>>(const Database& db)>;
  virtual Status Write(const MakeWrites& make, std::vector<std::string>* warnings) = 0;
  // As KernelStore::location.
  virtual std::string location() const = 0;
};

// Makes the store on a storage. `writable` false: it never writes.
std::unique_ptr<KernelStore> MakeKernelStore(std::unique_ptr<Storage> storage, bool writable);

}  // namespace cudaforge
