// InterceptedOp: one ATen overload that is or was intercepted: its place in PyTorch's dispatcher,
// the calls of it that were met, and its counts.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKey.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/append_only_table.h"
#include "base/json.h"
#include "base/status.h"
#include "dispatch/call_key.h"
#include "dispatch/resolver.h"
#include "signature/from_aten_call.h"

namespace cudaforge {

// Where overloads are intercepted.
inline constexpr std::array kInterceptedKeys = {c10::DispatchKey::CPU, c10::DispatchKey::CUDA};

// "aten::_softmax". kUnsupported, with why: what this PyTorch does not have, what no region can
// hold (CheckPure: views, mutation, out arguments, random numbers, shapes that depend on data),
// what returns lists, what has no kernel of its own for CPU or CUDA.
Result<c10::OperatorHandle> FindInterceptable(std::string_view op);

// Why a call has no kernel, and the names of that in Stats (see EagerInterceptor::Stats).
enum class Miss { kNew, kNoKernel, kUnsupported, kCapture, kTooMany };
inline constexpr const char* kMissNames[] = {"new", "no_kernel", "unsupported", "capture",
                                             "too_many"};
static_assert(std::size(kMissNames) == static_cast<size_t>(Miss::kTooMany) + 1);

// One call that was met. Lives as long as the process. What every call reads is at the beginning,
// here and in InterceptedOp: what runs between two calls leaves little in the first caches.
struct MetCall {
  uint64_t hash = 0;
  RegionEntry* region = nullptr;  // null: none holds it
  // The last SetOnMiss whose OnMiss was told of it; 0: none's.
  mutable std::atomic<uint64_t> told{0};
  c10::SmallVector<uint64_t, 32> words;
  std::vector<TensorPlace> inputs;  // of the region, among the call's arguments
  std::vector<c10::IValue> others;  // as in AtenCall
  std::string label;                // for profilers
};

// Lives as long as the process: a call may still be in it.
class InterceptedOp {
 public:
  // `kernel` is to stand before the backends' own.
  InterceptedOp(c10::OperatorHandle found, c10::BoxedKernel kernel);

  // "aten::sum.dim_IntList", as the dispatcher has it.
  const std::string& name() const { return name_; }
  // The call that was met with this key, or null. Takes no lock.
  const MetCall* Find(const CallKey& key) const { return Find(key.hash(), key.words()); }
  void Count(Miss reason) {
    misses[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  }

  // Runs the kernel that was there on the arguments on `stack`. Its own calls are OwnWork. Throws
  // PyTorch's error where another library has brought that kernel and has been unloaded since.
  void CallPrevious(c10::DispatchKeySet keys, torch::jit::Stack* stack);

  const c10::OperatorHandle op;
  std::atomic<bool> active{false};
  const bool is_matrix_op;
  const size_t arguments, returns;
  std::atomic<int64_t> hits{0}, fallbacks{0};
  std::array<std::atomic<int64_t>, std::size(kMissNames)> misses{};
  std::atomic<size_t> calls_met{0};

  // What follows is not thread-safe.

  // Registers the kernel at those of kInterceptedKeys that the overload has a kernel of its own
  // for, at CUDA's where `has_gpu`, before all that is registered then.
  void Activate(bool has_gpu);
  // Takes the kernel back. Calls that are under way run the previous one.
  void Deactivate();
  // False where another thread has met the same call.
  bool Keep(std::unique_ptr<const MetCall> call);
  // One entry of EagerInterceptor::Stats; null where there were no calls.
  Json Stats() const;
  void ResetStats();

 private:
  const MetCall* Find(uint64_t hash, c10::ArrayRef<uint64_t> words) const {
    return calls_.Find(
        hash, [=](const MetCall& met) { return met.hash == hash && words.equals(met.words); });
  }
  // Has kernel_ stand before the kernel that is there at kInterceptedKeys[i].
  void Register(size_t i);

  // By key, the kernel that was there. Replaced, never freed: a call may be in it.
  std::array<std::atomic<const c10::SafeKernelFunction*>, kInterceptedKeys.size()> previous_{};
  const std::string name_;
  const c10::BoxedKernel kernel_;
  AppendOnlyTable<const MetCall> calls_;
  std::array<std::unique_ptr<torch::Library>, kInterceptedKeys.size()> registrations_;
  std::vector<std::unique_ptr<const c10::SafeKernelFunction>> kernels_;
  std::vector<std::unique_ptr<const MetCall>> met_;
};

}  // namespace cudaforge
