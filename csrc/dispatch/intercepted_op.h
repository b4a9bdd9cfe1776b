// InterceptedOp: one ATen overload that is or was intercepted: its place in PyTorch's dispatcher,
// the calls of it that were met, and its counts.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/append_only_table.h"
#include "base/json.h"
#include "base/status.h"
#include "dispatch/call_key.h"
#include "dispatch/interceptable.h"
#include "dispatch/resolver.h"
#include "signature/from_aten_call.h"

namespace cudaforge {

// Why a call has no kernel, and the names of that in Stats (see EagerInterceptor::Stats).
enum class Miss { kNew, kNoKernel, kUnsupported, kCapture, kTooMany };
inline constexpr const char* kMissNames[] = {"new", "no_kernel", "unsupported", "capture",
                                             "too_many"};

// One call that was met. Lives as long as the process. What every call reads is at the beginning,
// here and in InterceptedOp: in a program that does more than this, it comes from no near cache.
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

class InterceptedOp;

// The kernel that stands at one dispatch key of an overload, before the one that was there. Lives
// as long as the process: a call may still be in it.
class Override final : public c10::OperatorKernel {
 public:
  // Takes every call that reaches the key; its arguments lie on the stack.
  using Handler = void (*)(InterceptedOp* op, const Override& kernel, c10::DispatchKeySet keys,
                           torch::jit::Stack* stack);

  Override(InterceptedOp* op, size_t key, c10::SafeKernelFunction previous, Handler handler);

  // How PyTorch calls it.
  void operator()(const c10::OperatorHandle& /*op*/, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    handler_(op_, *this, keys, stack);
  }

  // Runs the kernel that was there. Its own calls are OwnWork. Where that kernel has been
  // deregistered since and none but this stands before it, the one that is there now runs; else
  // PyTorch's error of that is thrown.
  void CallPrevious(c10::DispatchKeySet keys, torch::jit::Stack* stack) const;

 private:
  friend class InterceptedOp;

  InterceptedOp* const op_;
  const size_t key_;  // among kInterceptedKeys
  const c10::SafeKernelFunction previous_;
  const Handler handler_;
};

// Lives as long as the process: a call may still be in it.
class InterceptedOp : public Interceptable {
 public:
  // `handler` takes the calls. `mutex` guards what is said to need it, and outlives this.
  InterceptedOp(Interceptable found, Override::Handler handler, std::mutex* mutex);

  // "aten::sum.dim_IntList", as the dispatcher has it.
  const std::string& name() const { return name_; }
  // The call that was met with this key, or null. Takes no lock.
  const MetCall* Find(const CallKey& key) const { return Find(key.hash(), key.words()); }
  void Count(Miss reason) {
    misses[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  }

  // What follows needs the mutex.

  // Puts an override at those of kInterceptedKeys that the overload has a kernel of its own for and
  // this machine a device. kUnsupported, and nothing is changed: PyTorch refuses it.
  Status Activate();
  // The dispatcher has what it had. Calls may still come, and run the previous kernel. Where
  // another library's override stands before this one's and may call it, it stays and passes calls
  // on; doing this again once that has gone takes it away.
  void Deactivate();
  // False where another thread has met the same call.
  bool Keep(std::unique_ptr<const MetCall> call);
  // One entry of EagerInterceptor::Stats; null where there were no calls.
  Json Stats() const;
  void ResetStats();

  std::atomic<bool> active{false};
  const bool is_matrix_op;
  // Of `arguments`, the first `inputs` are functional's; the others are written to.
  const size_t arguments, inputs, returns;
  std::atomic<int64_t> hits{0}, fallbacks{0};
  std::array<std::atomic<int64_t>, std::size(kMissNames)> misses{};
  std::atomic<size_t> calls_met{0};

 private:
  const MetCall* Find(uint64_t hash, c10::ArrayRef<uint64_t> words) const {
    return calls_.Find(
        hash, [=](const MetCall& met) { return met.hash == hash && words.equals(met.words); });
  }
  friend class Override;

  struct Registration {
    const Override* kernel;
    std::unique_ptr<torch::Library> library;  // ends it
  };
  struct Made {
    const Override* kernel;
    c10::BoxedKernel boxed;  // as PyTorch takes it
  };
  // At one dispatch key. Each registration stands before the one before it.
  struct Place {
    std::vector<Registration> registrations;
    std::string mark;  // what PyTorch says of where they come from
    // The override that was made last, and what PyTorch said of the operator's kernels then. While
    // it says the same, that one's previous kernel is what is there, or has gone (see Renew).
    std::optional<Made> last;
    std::string kernels;
  };

  // What follows needs the mutex.

  // An override for the kernel that is there at kInterceptedKeys[i], not `gone`. It is kept.
  Made Make(size_t i, const Override* gone = nullptr);
  // Has one stand before that kernel.
  void Register(size_t i, const Override* gone = nullptr);
  // Whether an override of this operator is what PyTorch calls at kInterceptedKeys[i].
  bool StandsFirst(size_t i) const;
  // The override to be called in place of one whose previous kernel has gone. Null: there is none,
  // as another library's stands before that one and would call it again.
  const Override* Renew(const Override& gone);

  AppendOnlyTable<const MetCall> calls_;
  const std::string name_;
  const Override::Handler handler_;
  std::mutex* const mutex_;
  std::array<Place, kInterceptedKeys.size()> places_;
  std::vector<c10::BoxedKernel> kept_;  // every override
  std::vector<std::unique_ptr<const MetCall>> met_;
};

}  // namespace cudaforge
