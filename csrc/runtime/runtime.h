// What a process that serves kernels has one of: targets, the store in use, and the paths of this
// machine; and which of the store's records it goes by.
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

// {"cudaforge", "torch", "verifier"}, as records carry it.
const Json& Versions();

// Whether torch and the verifier are the ones that judged the record. Another one is a miss: its
// kernel was compared with other answers, raced against other rivals, or made by a generator whose
// kernels are no longer accepted. `device`: the name of the one here (DeviceArch::name), which must
// be the record's; empty: any.
bool JudgedByThisBuild(const CacheRecord& record, const std::string& device = "");

class Runtime {
 public:
  static Runtime& Get();  // never destroyed: calls may come during interpreter shutdown

  // Folders that may hold CUDA's libraries and headers; the folder of cudaforge-worker and
  // cudaforge-verifier; that of libtorch, empty where the verifier finds it without. The
  // environment wins. Once, at import.
  void Configure(const std::vector<std::string>& cuda_folders, const std::string& programs,
                 const std::string& torch = "");

  // The target of a device, made on first use and kept. Thread-safe.
  Result<Target*> TargetFor(DeviceType device, int device_index);

  // The store in use; one in memory until UseCache has been called. Thread-safe.
  std::shared_ptr<KernelStore> store();
  // Uses the database in `folder` from now on, read-only where it cannot be written. An error
  // leaves the process with a store in memory. Naming the folder in use again changes nothing. Of
  // two threads that open one at once, the first's stays. The store before is closed here, unless
  // others hold it. Thread-safe.
  Status UseCache(const std::string& folder);

  // What this process makes of a record. Thread-safe, all.
  // This process measured it, under doubt.
  void NoteDoubt(const CacheRecord& record);
  // Whether this process may go by the record: this build judged it, on such a device.
  bool Stands(const CacheRecord& record);
  // Whether it is to be measured again: another process did under doubt, more than a day ago.
  bool IsStale(const CacheRecord& record);
  // Puts a region that was called on the wanted list, but where its record stands and is not stale.
  // `arch`: its target's.
  void Want(const RegionEntry& region, const std::string& arch, WantedWriter* writer);

  // For ForgeHost::Try: the kernel on trial for this thread's OwnWork, and served once it has won.
  Result<std::unique_ptr<ForgeHost::OnTrial>> Try(const OpSignature& region, int device_index,
                                                  const ProvenKernel& kernel);

  // What a forge for a device works with; its records go to `store`.
  Workshop WorkshopFor(std::shared_ptr<KernelStore> store, const DeviceArch& arch);
  // Those that forges take theirs from.
  Verifiers& verifiers() { return verifiers_.Get(verifier_options_); }

  // Every folder that may hold CUDA's libraries and headers, the first to try first.
  const std::vector<std::string>& cuda_search_paths() const { return cuda_search_paths_; }
  const std::string& worker() const { return verifier_options_.worker; }
  const std::string& verifier() const { return verifier_options_.executable; }

 private:
  Runtime() = default;
  // The name of the first device of the record's kind; empty: there is none.
  std::string DeviceFor(const CacheRecord& record);
  // The Resolver's loader: the winner that the store has, or null. The error of one that is
  // damaged, or cannot be loaded, names the command that forgets it.
  Result<std::unique_ptr<Winner>> FromStore(const RegionEntry& entry);
  // A loaded kernel, ready to be served under `signature`.
  Result<std::unique_ptr<Winner>> Load(const OpSignature& signature, int device_index,
                                       Candidate candidate, const std::string& binary);

  // Set once, by Configure, before anybody else asks.
  std::vector<std::string> cuda_search_paths_;
  VerifierOptions verifier_options_;
  OfProcess<Verifiers> verifiers_;  // a forked child has its own

  std::mutex mutex_;  // guards what follows; a fork waits for it; its holder never waits
                      // for the GIL
  std::map<std::pair<DeviceType, int>, std::unique_ptr<Target>> targets_;
  std::shared_ptr<KernelStore> store_;
  std::set<std::pair<std::string, std::string>> doubts_;  // keys and archs
  std::string folder_;
  Status opened_;  // what came of opening it
};

}  // namespace cudaforge
