// InterceptedOp: one ATen overload that is or was intercepted: its place in PyTorch's dispatcher,
// its known calls and its counts.
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

// The dispatch keys at which overloads are intercepted.
inline constexpr std::array kInterceptedKeys = {c10::DispatchKey::CPU, c10::DispatchKey::CUDA};

// Looks up an overload: "aten::_softmax". kUnsupported, with the reason: it does not exist, no
// region can hold it (CheckPure), it returns lists, or it has no kernel of its own for CPU or CUDA.
Result<c10::OperatorHandle> FindInterceptable(std::string_view op);

// Why a call has no kernel. Stats has a name for each (see EagerInterceptor::Stats).
enum class Miss { kNew, kNoKernel, kUnsupported, kCapture, kTooMany };
inline constexpr const char* kMissNames[] = {"new", "no_kernel", "unsupported", "capture",
                                             "too_many"};
static_assert(std::size(kMissNames) == static_cast<size_t>(Miss::kTooMany) + 1);

// One known call. Lives as long as the process. The members that every call reads come first, here
// and in InterceptedOp, to touch few cache lines.
struct KnownCall {
  uint64_t hash = 0;
  RegionEntry* region = nullptr;  // null: no region can hold it
  // The number of the last SetOnMiss whose handler got this call; 0: none.
  mutable std::atomic<uint64_t> notified{0};
  c10::SmallVector<uint64_t, 32> words;
  std::vector<TensorPlace> inputs;  // of the region, as places among the call's arguments
  std::vector<c10::IValue> others;  // as in AtenCall
  std::string label;                // for profilers
};

// Lives as long as the process, because a call may still be running in it.
class InterceptedOp {
 public:
  // `kernel` is what Activate registers over the backends' own kernels.
  InterceptedOp(c10::OperatorHandle found, c10::BoxedKernel kernel);

  // "aten::sum.dim_IntList": the name in the dispatcher.
  const std::string& name() const { return name_; }
  // Returns the known call with this key, or null. Takes no lock.
  const KnownCall* Find(const CallKey& key) const { return Find(key.hash(), key.words()); }
  void Count(Miss reason) {
    misses[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  }

  // Runs the previous kernel on the arguments on `stack`. ATen calls inside it are OwnWork. Throws
  // PyTorch's error if the library that registered that kernel was unloaded.
  void CallPrevious(c10::DispatchKeySet keys, torch::jit::Stack* stack);

  const c10::OperatorHandle op;
  std::atomic<bool> active{false};
  const bool is_matrix_op;
  const size_t arguments, returns;
  std::atomic<int64_t> hits{0}, fallbacks{0};
  std::array<std::atomic<int64_t>, std::size(kMissNames)> misses{};
  std::atomic<size_t> calls_known{0};

  // The rest is not thread-safe.

  // Registers our kernel at each of kInterceptedKeys where the overload has a kernel of its own
  // (CUDA only if `has_gpu`). It overrides everything registered so far.
  void Activate(bool has_gpu);
  // Unregisters our kernel. Calls that are running go on with the previous one.
  void Deactivate();
  // Adds a known call. Returns false if another thread has added it already.
  bool Add(std::unique_ptr<const KnownCall> call);
  // One entry of EagerInterceptor::Stats; null if there were no calls.
  Json Stats() const;
  void ResetStats();

 private:
  const KnownCall* Find(uint64_t hash, c10::ArrayRef<uint64_t> words) const {
    return calls_.Find(hash, [=](const KnownCall& known) {
      return known.hash == hash && words.equals(known.words);
    });
  }
  // Registers kernel_ over the current kernel at kInterceptedKeys[i].
  void Register(size_t i);

  // The previous kernel, by key. Replaced but never freed: a call may be running in it.
  std::array<std::atomic<const c10::SafeKernelFunction*>, kInterceptedKeys.size()> previous_{};
  const std::string name_;
  const c10::BoxedKernel kernel_;
  AppendOnlyTable<const KnownCall> calls_;
  std::array<std::unique_ptr<torch::Library>, kInterceptedKeys.size()> registrations_;
  std::vector<std::unique_ptr<const c10::SafeKernelFunction>> kernels_;
  std::vector<std::unique_ptr<const KnownCall>> known_;
};

}  // namespace cudaforge
