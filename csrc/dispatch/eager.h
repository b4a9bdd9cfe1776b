// EagerInterceptor: ATen operators on their way through PyTorch's dispatcher. For each overload
// that it is set to, one boxed kernel stands before the backend's own, at the dispatch keys CPU and
// CUDA: below autograd, autocast and functorch, which have had their turn. A call that was met
// before is found by its CallKey, without a lock and without an allocation; one with a kernel is
// served by it, any other goes to the kernel that was there, whose own calls are not looked up. One
// per process.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "dispatch/resolver.h"

namespace cudaforge {

class EagerInterceptor {
 public:
  static EagerInterceptor& Get();

  // Why an overload ("aten::_softmax", "aten::sum.dim_IntList") may not be intercepted: the error
  // of FindInterceptable.
  static Status CanIntercept(std::string_view op);

  // From now on exactly these overloads are intercepted; for those no longer among them, the
  // dispatcher has what it had. The same set changes nothing, nor does an error, which is
  // CanIntercept's of one of them. Thread-safe, also beside calls.
  Status SetOps(const std::vector<std::string>& ops);
  std::vector<std::string> ops() const;  // sorted

  // Told of each call that a region holds, that is met for the first time since SetOnMiss and has
  // no kernel (RegionEntry::ForEager): its region. Told in the calling thread, after the call has
  // run, and not while a CUDA graph is captured. May take its time and make winners; its own calls
  // of ATen are not intercepted. What it throws is warned of; what it returns (an interrupt) is
  // thrown to the caller of the operator. Null: nobody.
  using OnMiss = std::function<std::exception_ptr(const RegionEntry&)>;
  void SetOnMiss(OnMiss on_miss);

  // {"aten::_softmax": {"calls":, "hits":, "fallbacks":, "misses": {reason: n}}}, of every overload
  // that had calls. A call of the program's (not of OwnWork) is a hit, a fallback (its kernel could
  // not take it, or is quarantined) or a miss: "new" (met for the first time), "no_kernel",
  // "unsupported" (no region holds it, or the default dtype is not float32), "capture" (met for the
  // first time while a CUDA graph was captured), "too_many" (other calls were met before it).
  Json Stats() const;
  void ResetStats();

 private:
  EagerInterceptor();
  struct Impl;
  Impl* impl_;  // never destroyed: calls may come during interpreter shutdown
};

}  // namespace cudaforge
