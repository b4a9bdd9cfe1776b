// What the Python process has one of: targets, the store in use, and the paths of this machine.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/kernel_store.h"
#include "dispatch/resolver.h"
#include "forge/region.h"
#include "signature/op_signature.h"
#include "target/target.h"

namespace cudaforge::binding {

// Nanoseconds that one call of a winner saves over its fastest rival, by a record's timing.
double SavedNs(const CacheRecord& record);

class Runtime {
 public:
  static Runtime& Get();  // never destroyed: calls may come during interpreter shutdown

  // Folders that may hold CUDA's libraries and headers, and the worker executable; the environment
  // wins. Once, at import.
  void Configure(const std::vector<std::string>& cuda_folders, const std::string& worker);

  // The target of a device, made on first use and kept. Thread-safe.
  Result<Target*> TargetFor(DeviceType device, int device_index);

  // The store in use; one in memory until UseCache has been called. Thread-safe.
  std::shared_ptr<KernelStore> store();
  // Uses the database in `folder` from now on, read-only where it cannot be written. An error
  // leaves the process with a store in memory. Naming the folder in use again changes nothing. Of
  // two threads that open one at once, the first's stays. The store before is closed here, unless
  // others hold it. Thread-safe.
  Status UseCache(const std::string& folder);

  // This process makes the doubtful record of a region, which holds for it alone. Thread-safe, as
  // whether it has.
  void NoteDoubt(const CacheRecord& record);
  bool HasDoubted(const CacheRecord& record);

  // A loaded kernel, ready to be served under `signature`.
  Result<std::unique_ptr<Winner>> LoadWinner(const OpSignature& signature, int device_index,
                                             const Json& candidate, const std::string& binary);

  // What a forge for a device works with; its records go to `store`.
  Workshop WorkshopFor(std::shared_ptr<KernelStore> store, DeviceType device,
                       int device_index) const;

  // Every folder that may hold CUDA's libraries and headers, the first to try first.
  const std::vector<std::string>& cuda_search_paths() const { return cuda_search_paths_; }
  const std::string& worker() const { return worker_; }

 private:
  Runtime() = default;
  // The Resolver's loader: the winner that the store has, or null. The error of one that is
  // damaged, or cannot be loaded, names the command that forgets it.
  Result<std::unique_ptr<Winner>> FromStore(const RegionEntry& entry);

  // Set once, by Configure, before anybody else asks.
  std::vector<std::string> cuda_search_paths_;
  std::string worker_;

  std::mutex mutex_;  // guards what follows; a fork waits for it; its holder never waits
                      // for the GIL
  std::map<std::pair<DeviceType, int>, std::unique_ptr<Target>> targets_;
  std::shared_ptr<KernelStore> store_;
  std::set<std::pair<std::string, std::string>> doubts_;  // keys and archs
  std::string folder_;
  Status opened_;  // what came of opening it
};

}  // namespace cudaforge::binding
