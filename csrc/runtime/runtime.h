// What a process that serves kernels has one of: targets, the store in use, and the paths of this
// machine. Also decides which records of the store are valid here.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "cache/kernel_store.h"
#include "cache/wanted_writer.h"
#include "dispatch/resolver.h"
#include "forge/region.h"
#include "signature/op_signature.h"
#include "target/target.h"
#include "verify/verifiers.h"

namespace cudaforge {

// The versions that records carry: {"cudaforge", "torch", "verifier"}.
const Json& Versions();

// Returns true if the record was judged by this torch and this verifier. Otherwise its evidence is
// out of date, and the record is a miss. See also Runtime::IsCurrent.
bool JudgedByThisBuild(const CacheRecord& record);

class Runtime {
 public:
  static Runtime& Get();  // never destroyed: calls may come during interpreter shutdown

  // `cuda_folders` may hold CUDA's libraries and headers. `programs` holds cudaforge-worker and
  // cudaforge-verifier. `torch` holds libtorch; empty if the verifier finds it by itself.
  // Environment variables override all three. Called once, at import.
  void Configure(const std::vector<std::string>& cuda_folders, const std::string& programs,
                 const std::string& torch = "");

  // Returns the target of a device, created on first use. Thread-safe.
  Result<Target*> TargetFor(DeviceType device, int device_index);

  // Returns the store in use. Before UseCache it is a store in memory. Thread-safe.
  std::shared_ptr<KernelStore> store();
  // Switches to the database in `folder`, read-only if it cannot be written. After an error the
  // process has a store in memory. Does nothing if `folder` is already in use, or if another thread
  // opened it first. Closes the old store unless another owner holds it. Thread-safe.
  Status UseCache(const std::string& folder);

  // The next four are thread-safe. Marks a record as measured by this process while the machine was
  // busy.
  void NoteDoubt(const CacheRecord& record);
  // Returns true if this process may use the record: this build judged it, on a device of this
  // kind, with this version of cuBLASLt.
  bool IsCurrent(const CacheRecord& record);
  // Returns true if the record is due for another measurement: another process measured it on a
  // busy machine, more than a day ago.
  bool IsStale(const CacheRecord& record);
  // Adds a region to the wanted list, unless its record is valid and not stale. `arch`: its
  // target's.
  void AddToWantedList(const RegionEntry& region, const std::string& arch, WantedWriter* writer);

  // Implements ForgeHost::Try: only this thread's OwnWork runs the kernel, until it is promoted.
  Result<std::unique_ptr<ForgeHost::OnTrial>> Try(const OpSignature& region, int device_index,
                                                  const ProvenKernel& kernel);

  // Returns what a forge for a device needs. Its records go to `store`.
  Workshop WorkshopFor(std::shared_ptr<KernelStore> store, const DeviceArch& arch);
  // The verifiers that all forges share.
  Verifiers& verifiers() { return verifiers_.Get(verifier_options_); }

  // Every folder that may hold CUDA's libraries and headers, in search order.
  const std::vector<std::string>& cuda_search_paths() const { return cuda_search_paths_; }
  const std::string& worker() const { return verifier_options_.worker; }
  const std::string& verifier() const { return verifier_options_.executable; }

 private:
  Runtime() = default;
  // Returns the versions for records of a device of this machine.
  Json VersionsOn(const DeviceArch& arch) const;
  // The Resolver's loader: returns the stored winner, or null. If the record is damaged or cannot
  // be loaded, the error names the command that deletes it. For another version of cuBLASLt: null.
  Result<std::unique_ptr<Winner>> FromStore(const RegionEntry& entry);
  // Returns a loaded kernel, ready to be served under `signature`.
  Result<std::unique_ptr<Winner>> Load(const OpSignature& signature, int device_index,
                                       Candidate candidate, const std::string& binary);

  // Set once, by Configure, before any other call.
  std::vector<std::string> cuda_search_paths_;
  VerifierOptions verifier_options_;
  OfProcess<Verifiers> verifiers_;  // a forked child has its own

  std::mutex mutex_;  // guards what follows; a fork waits for it; never wait for the GIL
  std::map<std::pair<DeviceType, int>, std::unique_ptr<Target>> targets_;
  std::shared_ptr<KernelStore> store_;
  std::set<std::pair<std::string, std::string>> doubts_;  // keys and archs
  std::string folder_;
  Status opened_;  // the result of opening it
};

}  // namespace cudaforge
