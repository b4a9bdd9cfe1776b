// Resolver: from a region id to what runs it here. One per process. Hits take no lock and allocate nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "signature/from_aten_region.h"
#include "signature/op_signature.h"
#include "target/target.h"

namespace cudaforge {

// A kernel that may be served: loaded, with its constraints as compares.
struct Winner {
  std::unique_ptr<Executable> executable;
  std::vector<Constraint> constraints;
  std::string record_key;
};

// One region on one device. Lives as long as the process.
struct RegionEntry {
  int64_t id = 0;
  std::string key;
  OpSignature signature;
  std::unique_ptr<RegionProgram> program;
  std::atomic<const Winner*> winner{nullptr};  // swapped in between two calls; old ones are kept alive
  std::atomic<int64_t> hits{0}, misses{0}, fallbacks{0};
  // Expected nanoseconds saved by one hit (from the record), for statistics.
  std::atomic<double> saved_ns{0};
};

class Resolver {
 public:
  static Resolver& Get();

  // Finds or makes the entry. `load` is asked once, on first sight, for a winner (from the store); null: there is none.
  // An id whose stored key differs from this signature's (a collision) is kInvalidArgument.
  using LoadWinner = std::function<Result<std::unique_ptr<Winner>>(const RegionEntry&, int device_index)>;
  void SetLoader(LoadWinner load);
  Result<RegionEntry*> Resolve(int64_t id, std::string_view canonical_signature, int device_index);
  // Hot path: nullptr when (id, device) has not been resolved.
  RegionEntry* Find(int64_t id, int device_index) const;
  // Installs a winner (promoted in the background, or on trial); nullptr removes it. Thread-safe.
  void Install(RegionEntry* entry, std::unique_ptr<Winner> winner);
  // Never serve this entry again in this process (its launch failed).
  void Quarantine(RegionEntry* entry, const std::string& why);

  // {"hits":, "misses":, "fallbacks": {reason: n}, "saved_ns":, "regions": [...]}
  Json Stats() const;
  void ResetStats();
  // One warning per message and process, through this sink (the binding routes it to Python's warnings).
  void SetWarningSink(std::function<void(const std::string&)> sink);

 private:
  Resolver();
  struct Impl;
  Impl* impl_;  // never destroyed: calls may come during interpreter shutdown
};

}  // namespace cudaforge
