// Resolver: from a region id to what runs it here. One per process. Finding it takes no lock and
// allocates nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "dispatch/contract.h"
#include "dispatch/labels.h"
#include "signature/from_aten_region.h"
#include "signature/op_signature.h"
#include "target/target.h"

namespace cudaforge {

constexpr int64_t kScratchAlignment = 256;  // bytes, of every scratch buffer

// A kernel that may be served: loaded, with its constraints as compares.
struct Winner {
  std::unique_ptr<Executable> executable;
  std::vector<Constraint> constraints;
  double saved_ns = 0;                 // expected of one hit (from the record), for statistics
  bool compiled = true, eager = true;  // whom it serves

  // Filled in by Resolver::Adopt.
  std::vector<uintptr_t> alignment_masks;  // per input: bits of the data pointer that must be zero
  std::vector<int64_t> scratch_offsets;    // all scratch buffers live in one allocation
  int64_t scratch_bytes = 0;
};

// Why a call of a region that was forged ran PyTorch's way, and the names of that in Stats.
enum class Fallback {
  kDevice,
  kStrides,
  kAlignment,
  kNumerics,
  kLabels,
  kNoMemory,
  kLaunchError,
  kQuarantined
};
inline constexpr const char* kFallbackNames[] = {"device",       "strides",    "alignment",
                                                 "numerics",     "labels",     "no_memory",
                                                 "launch_error", "quarantined"};
static_assert(std::size(kFallbackNames) == static_cast<size_t>(Fallback::kQuarantined) + 1);

// One region on one device. Lives as long as the process. What every call reads is at its
// beginning.
struct RegionEntry {
  // Swapped in between two calls; old ones are kept alive. For calls of OwnWork see KernelOnTrial.
  std::atomic<const Winner*> winner{nullptr};     // of compiled graphs
  std::atomic<const Winner*> for_eager{nullptr};  // of eager calls
  // What an eager call runs, or null.
  const Winner* ForEager() const { return for_eager.load(std::memory_order_acquire); }
  std::atomic<bool> quarantined{false};
  // Unserved: a call when there was no winner. A fallback: a call that did not use the winner there
  // is.
  std::atomic<int64_t> hits{0}, unserved{0}, fallbacks{0};

  int64_t id = 0;
  int device_index = 0;  // 0 for the CPU
  std::string key;
  OpSignature signature;
  std::unique_ptr<RegionProgram> program;
  InputContract contract;
  std::vector<at::ScalarType> output_dtypes;
  std::vector<LabelInput> labels;
  // MatrixNumericsWord of the signature. Compiled graphs are not guarded by all of these settings:
  // each call looks at them.
  std::optional<uint64_t> matrix_numerics;
  // Hits of calls that CudaForge makes itself (OwnWork): races, graph timing. Not in `hits`.
  std::atomic<int64_t> own_hits{0};
  std::atomic<double> saved_ns{0};  // by one hit, as the last winner's record expects
  std::string quarantined_for;      // guarded by the Resolver
  std::atomic<bool> asked{false};   // whether the loader was, or is being
  // What Resolver::Unaligned found; the entry itself where there is no such region.
  std::atomic<RegionEntry*> unaligned{nullptr};
};

class Resolver {
 public:
  static Resolver& Get();

  // `load` is asked for an entry's winner (from the store) at its first Resolve; null: there is
  // none. While it is being asked in one thread, others get the entry without a winner; what it
  // throws or returns as an error is warned of, and there is no winner.
  using LoadWinner = std::function<Result<std::unique_ptr<Winner>>(const RegionEntry&)>;
  void SetLoader(LoadWinner load);
  // For entries without a winner the loader is asked again at their next Resolve: it may know more
  // by then.
  void AskAgain();
  // Finds or makes the entry. `may_load` false: the loader is not asked (stream capture).
  // kInvalidArgument: a malformed signature, an id that is not RegionId of its key, or an id whose
  // stored key differs (a collision). kUnsupported: as RegionProgram.
  Result<RegionEntry*> Resolve(int64_t id, std::string_view canonical_signature, int device_index,
                               bool may_load = true);
  // Hot path: nullptr when (id, device) has not been resolved. A negative index is 0.
  RegionEntry* Find(int64_t id, int device_index) const;
  // Whether Resolve would ask the loader for this entry.
  bool WantsWinner(const RegionEntry& entry) const;
  // The entry of the same region for inputs aligned to their element size only, for a call whose
  // addresses the winner of `entry` cannot take. Null if `entry` is that one. `may_load`: as for
  // Resolve.
  RegionEntry* Unaligned(RegionEntry* entry, bool may_load);
  // `told` is called where Unaligned found a region without a winner, in the thread of that call.
  // It may be called again for a region, and by several threads at once. It must not throw. Null:
  // ends that. Thread-safe.
  void SetOnUnaligned(std::function<void(const RegionEntry&)> told);
  // Has a kernel ready to be launched for the entry, and keeps it for the life of the process: a
  // call may be in it. REQUIRES: it has an executable, its constraints name inputs of the region.
  const Winner* Adopt(const RegionEntry& entry, std::unique_ptr<Winner> winner);
  // From now on compiled graphs, eager calls or both run an adopted kernel; nullptr: none.
  // Nothing happens to a quarantined entry. Leaves saved_ns to who has timed the kernel.
  // Thread-safe.
  void Promote(RegionEntry* entry, const Winner* adopted, bool compiled = true, bool eager = true);
  // Adopt, then Promote for those whom the kernel serves.
  void Install(RegionEntry* entry, std::unique_ptr<Winner> winner);
  // Never serve this entry again in this process (its launch failed).
  void Quarantine(RegionEntry* entry, const std::string& why);
  void CountFallback(RegionEntry* entry, Fallback reason);

  // {"hits":, "unserved":, "fallbacks": {reason: n}, "saved_ns":, "regions": [{"key", "describe",
  // "device", "hits", "unserved", "fallbacks", "own_hits", "saved_ns", "quarantined": why or
  // null}]}, regions in order of first sight.
  Json Stats() const;
  void ResetStats();
  // Warnings go through this sink (the binding's: stats.warn_once in Python); without a sink, to
  // PyTorch's own.
  void SetWarningSink(std::function<void(const std::string&)> sink);
  void Warn(const std::string& message);

 private:
  Resolver();
  void AskLoader(RegionEntry* entry);
  struct Impl;
  Impl* impl_;  // never destroyed: calls may come during interpreter shutdown
};

}  // namespace cudaforge
