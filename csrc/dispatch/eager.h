// EagerInterceptor: intercepts ATen operators in PyTorch's dispatcher. Each chosen overload gets
// one boxed kernel at the dispatch keys CPU and CUDA: below autograd, autocast and functorch. A
// known call is found by its CallKey, without a lock or an allocation. It runs its CudaForge kernel
// if it has one, else PyTorch's kernel. One per process.
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

  // Returns an error if an overload ("aten::_softmax", "aten::sum.dim_IntList") may not be
  // intercepted: that of FindInterceptable.
  static Status CanIntercept(std::string_view op);

  // Intercepts exactly these overloads and no others. Does nothing if the set is unchanged. On an
  // error (CanIntercept's) the old set stays. Thread-safe, also while calls run.
  Status SetOps(const std::vector<std::string>& ops);
  std::vector<std::string> ops() const;  // sorted

  // Called with the region of each new call that has no kernel (RegionEntry::ForEager): once a call
  // after SetOnMiss, in the calling thread, after the call has run. Not called during capture of a
  // CUDA graph. May run long and make winners; its own ATen calls are not intercepted. An exception
  // that it throws becomes a warning. One that it returns (an interrupt) is thrown to the
  // operator's caller. Null: no handler.
  using OnMiss = std::function<std::exception_ptr(const RegionEntry&)>;
  void SetOnMiss(OnMiss on_miss);

  // {"aten::_softmax": {"calls":, "hits":, "fallbacks":, "misses": {reason: n}}}, of every overload
  // with calls by the program (not OwnWork). A fallback: its kernel could not take the call, or is
  // quarantined. The reasons of misses: "new" (first seen), "no_kernel", "unsupported" (no region
  // can hold it, or the default dtype is not float32), "capture" (first seen while a CUDA graph was
  // captured), "too_many" (the table of calls is full).
  Json Stats() const;
  void ResetStats();

 private:
  EagerInterceptor();
  struct Impl;
  Impl* impl_;  // never destroyed: calls may come during interpreter shutdown
};

}  // namespace cudaforge
