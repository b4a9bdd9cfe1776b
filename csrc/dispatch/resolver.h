// Resolver: maps a region id to the kernel that serves it. One per process. The lookup takes no
// lock and does not allocate.
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

// A kernel that can be served: loaded, with its constraints as comparisons.
struct Winner {
  std::unique_ptr<Executable> executable;
  std::vector<Constraint> constraints;
  double saved_ns = 0;                 // expected for one hit (from the record), for statistics
  bool compiled = true, eager = true;  // what it serves: compiled graphs, eager calls

  // Filled in by Resolver::Adopt.
  std::vector<uintptr_t> alignment_masks;  // per input: address bits that must be zero
  // All scratch buffers live in one allocation, the prepared ones (the last) in another, or behind
  // the former.
  std::vector<int64_t> scratch_offsets;
  int64_t scratch_bytes = 0, prepared_bytes = 0;
  std::vector<size_t> frozen_inputs;  // if there are prepared buffers
};

// Why a region with a winner ran in PyTorch. Stats has a name for each.
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

// One region on one device. Lives as long as the process. The members that every call reads come
// first.
struct RegionEntry {
  // Replaced while calls run, so old ones are never freed. KernelOnTrial overrides both for
  // OwnWork.
  std::atomic<const Winner*> winner{nullptr};     // for compiled graphs
  std::atomic<const Winner*> for_eager{nullptr};  // for eager calls
  // Returns the kernel for an eager call, or null.
  const Winner* ForEager() const { return for_eager.load(std::memory_order_acquire); }
  std::atomic<bool> quarantined{false};
  // `unserved`: calls while there was no winner. `fallbacks`: calls that could not use the winner.
  std::atomic<int64_t> hits{0}, unserved{0}, fallbacks{0};

  int64_t id = 0;
  int device_index = 0;  // 0 for the CPU
  std::string key;
  OpSignature signature;
  std::unique_ptr<RegionProgram> program;
  InputContract contract;
  std::vector<at::ScalarType> output_dtypes;
  std::vector<LabelInput> labels;
  // MatrixNumericsWord of the signature. Checked in each call, because Dynamo's guards do not cover
  // all of these settings.
  std::optional<uint64_t> matrix_numerics;
  // Hits by CudaForge's own calls (OwnWork), such as races. Not included in `hits`.
  std::atomic<int64_t> own_hits{0};
  std::atomic<double> saved_ns{0};  // per hit, as the last winner's record expects
  std::string quarantined_for;      // guarded by the Resolver
  std::atomic<bool> asked{false};   // whether the loader was called, or is running
  // The result of Resolver::Unaligned; this entry itself if there is no such region.
  std::atomic<RegionEntry*> unaligned{nullptr};
};

class Resolver {
 public:
  static Resolver& Get();

  // `load` returns an entry's winner (from the store), or null. Called once, at the entry's first
  // Resolve. Other threads get the entry without a winner meanwhile. An exception or error becomes
  // a warning, and the entry has no winner.
  using LoadWinner = std::function<Result<std::unique_ptr<Winner>>(const RegionEntry&)>;
  void SetLoader(LoadWinner load);
  // Makes the next Resolve of each entry without a winner call the loader.
  void RetryMissing();
  // Finds or makes the entry. `may_load` false (stream capture): does not call the loader.
  // kInvalidArgument: a malformed signature, an id that is not RegionId of its key, or another
  // region with the same id. kUnsupported: as RegionProgram.
  Result<RegionEntry*> Resolve(int64_t id, std::string_view canonical_signature, int device_index,
                               bool may_load = true);
  // Hot path. Returns null if (id, device) has not been resolved. A negative index means 0.
  RegionEntry* Find(int64_t id, int device_index) const;
  // Returns true if Resolve would call the loader for this entry.
  bool WouldLoad(const RegionEntry& entry) const;
  // Returns the entry of the same region with inputs aligned to their element size only. Used if
  // the winner of `entry` needs better aligned addresses. Null if `entry` is that entry.
  // `may_load`: as for Resolve.
  RegionEntry* Unaligned(RegionEntry* entry, bool may_load);
  // `notify` is called with each region without a winner that Unaligned returns, in the calling
  // thread. It may be called repeatedly and concurrently, and must not throw. Null: removes it.
  // Thread-safe.
  void SetOnUnaligned(std::function<void(const RegionEntry&)> notify);
  // Prepares a kernel for launches and keeps it for the life of the process, because a call may be
  // running in it. REQUIRES: it has an executable, and its constraints name inputs of the region.
  const Winner* Adopt(const RegionEntry& entry, std::unique_ptr<Winner> winner);
  // Makes compiled graphs, eager calls or both run an adopted kernel; null: none. Does nothing if
  // the entry is quarantined. Does not set saved_ns: the caller does. Thread-safe.
  void Promote(RegionEntry* entry, const Winner* adopted, bool compiled = true, bool eager = true);
  // Adopt, then Promote for what the kernel serves.
  void Install(RegionEntry* entry, std::unique_ptr<Winner> winner);
  // Stops serving this entry in this process, because its launch failed.
  void Quarantine(RegionEntry* entry, const std::string& why);
  void CountFallback(RegionEntry* entry, Fallback reason);

  // {"hits":, "unserved":, "fallbacks": {reason: n}, "saved_ns":, "regions": [{"key", "describe",
  // "device", "hits", "unserved", "fallbacks", "own_hits", "saved_ns", "quarantined": why or
  // null}]}, regions in the order in which they were first seen.
  Json Stats() const;
  void ResetStats();
  // Sets where warnings go: to stats.warn_once in Python, through the binding. Default: PyTorch's
  // warnings.
  void SetWarningSink(std::function<void(const std::string&)> sink);
  void Warn(const std::string& message);

 private:
  Resolver();
  void AskLoader(RegionEntry* entry);
  struct Impl;
  Impl* impl_;  // never destroyed: calls may come during interpreter shutdown
};

}  // namespace cudaforge
