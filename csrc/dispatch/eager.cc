#include "dispatch/eager.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/append_only_table.h"
#include "base/check.h"
#include "base/fork.h"
#include "base/own_work.h"
#include "dispatch/cuda_driver.h"
#include "dispatch/intercepted_op.h"
#include "dispatch/serve.h"
#include "signature/aten_numerics.h"

namespace cudaforge {
namespace {

using c10::IValue;
using torch::jit::Stack;

constexpr size_t kFirstOpSlots = 512;
constexpr size_t kMostCalls = 1 << 15;  // known calls of one overload: shapes may vary without
                                        // limit

// By operator. Never destroyed: calls may come during interpreter shutdown.
AppendOnlyTable<InterceptedOp>& g_ops = *new AppendOnlyTable<InterceptedOp>(kFirstOpSlots);

// Hashes the address of the dispatcher's entry for the operator, which all handles share.
size_t Hash(const c10::OperatorHandle& op) { return Spread(std::hash<c10::OperatorHandle>{}(op)); }

InterceptedOp* FindOp(const c10::OperatorHandle& op) {
  return g_ops.Find(Hash(op), [&](const InterceptedOp& one) { return one.op == op; });
}

// The number of calls of SetOnMiss. Known calls are reported once in each generation.
std::atomic<uint64_t> g_generation{1};

// The settings that a call depends on. Adds to the signature's numerics whether nondeterministic
// operators only warn: calls that PyTorch refuses in strict mode must not be served.
constexpr uint64_t kWarnOnlyBit = uint64_t{1} << 63;  // not in NumericsWord
uint64_t SettingsWord(bool matrix) {
  const uint64_t numerics = NumericsWord(matrix);
  if ((numerics & kDeterministicBit) == 0) [[likely]]
    return numerics;
  return at::globalContext().deterministicAlgorithmsWarnOnly() ? numerics | kWarnOnlyBit : numerics;
}

// Returns false if the call has no key, or if the default dtype was changed: results may depend on
// it, and signatures do not include it.
bool ReadKey(const InterceptedOp& op, const Stack& stack, CallKey* key) {
  return c10::get_default_dtype() == caffe2::TypeMeta::Make<float>() &&
         key->Read(torch::jit::last(stack, op.arguments), SettingsWord(op.is_matrix_op));
}

// Serves the call on `stack` by its kernel: replaces the arguments by the results.
bool ServeCall(const InterceptedOp& op, const KnownCall& known_call, const Winner& winner,
               Stack* stack) {
  const c10::ArrayRef<IValue> args = torch::jit::last(*stack, op.arguments);
  TensorPointers tensors;
  for (const TensorPlace& place : known_call.inputs) tensors.push_back(&place.In(args));
  OutputTensors made;
  if (!Serve(known_call.region, winner, tensors, &made)) return false;
  torch::jit::drop(*stack, op.arguments);
  size_t next = 0;
  for (const IValue& other : known_call.others) {
    stack->push_back(other.isNone() ? IValue(std::move(made[next++])) : other);
  }
  return true;
}

void Warn(const std::string& what, const std::exception& error) {
  Resolver::Get().Warn("cudaforge: " + what + ", PyTorch runs it: " + error.what());
}

}  // namespace

struct EagerInterceptor::Impl {
  // Guards everything below. Held while PyTorch's dispatcher registers kernels, but never while an
  // operator or OnMiss runs. A fork waits for it.
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<InterceptedOp>> known;
  OnMiss on_miss;

  // A new call: runs in PyTorch, then is looked up.
  void RunNew(InterceptedOp* op, const CallKey& key, c10::DispatchKeySet keys, Stack* stack);
  // Returns null if another thread has added it, or it cannot be described.
  const KnownCall* Learn(InterceptedOp* op, const CallKey& key, c10::ArrayRef<IValue> args,
                         c10::ArrayRef<IValue> results);
  // Calls OnMiss for a call without a kernel, once in a generation.
  void NotifyMiss(const KnownCall& known_call);

  // The kernel of every overload. Stateless, because PyTorch's dispatcher may call it while another
  // thread replaces it.
  static void Kernel(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack);
  // Handles a call with a kernel. Out of line: keeps the miss path small for the instruction cache.
  static void Hit(InterceptedOp* op, const KnownCall& known_call, const Winner& winner,
                  c10::DispatchKeySet keys, Stack* stack);
};

void EagerInterceptor::Impl::Kernel(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                                    Stack* stack) {
  InterceptedOp& op = *FindOp(handle);
  if (OwnWork::InForce() || !op.active.load(std::memory_order_relaxed)) [[unlikely]] {
    return op.CallPrevious(keys, stack);
  }
  CallKey key;
  if (!ReadKey(op, *stack, &key)) [[unlikely]] {
    op.Count(Miss::kUnsupported);
    return op.CallPrevious(keys, stack);
  }
  const KnownCall* known_call = op.Find(key);
  if (known_call == nullptr) [[unlikely]]
    return Get().impl_->RunNew(&op, key, keys, stack);
  if (known_call->region == nullptr) {
    op.Count(Miss::kUnsupported);
    return op.CallPrevious(keys, stack);
  }
  const Winner* winner = known_call->region->ForEager();
  if (winner == nullptr) {
    if (known_call->region->quarantined.load(std::memory_order_relaxed)) [[unlikely]] {
      Resolver::Get().CountFallback(known_call->region, Fallback::kQuarantined);
      op.fallbacks.fetch_add(1, std::memory_order_relaxed);
      return op.CallPrevious(keys, stack);
    }
    op.Count(Miss::kNoKernel);
    known_call->region->unserved.fetch_add(1, std::memory_order_relaxed);
    op.CallPrevious(keys, stack);
    if (known_call->notified.load(std::memory_order_relaxed) !=
        g_generation.load(std::memory_order_relaxed)) [[unlikely]] {
      Get().impl_->NotifyMiss(*known_call);
    }
    return;
  }
  Hit(&op, *known_call, *winner, keys, stack);
}

[[gnu::noinline]] void EagerInterceptor::Impl::Hit(InterceptedOp* op, const KnownCall& known_call,
                                                   const Winner& winner, c10::DispatchKeySet keys,
                                                   Stack* stack) {
  RECORD_USER_SCOPE(known_call.label);
  if (ServeCall(*op, known_call, winner, stack)) {
    op->hits.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  op->fallbacks.fetch_add(1, std::memory_order_relaxed);
  op->CallPrevious(keys, stack);
}

void EagerInterceptor::Impl::RunNew(InterceptedOp* op, const CallKey& key, c10::DispatchKeySet keys,
                                    Stack* stack) {
  const bool captured = IsCapturing(key.device());
  if (captured || op->calls_known.load(std::memory_order_relaxed) >= kMostCalls) {
    op->Count(captured ? Miss::kCapture : Miss::kTooMany);
    return op->CallPrevious(keys, stack);
  }
  op->Count(Miss::kNew);
  const std::vector<IValue> args = torch::jit::last(*stack, op->arguments).vec();
  op->CallPrevious(keys, stack);
  const KnownCall* known_call = nullptr;
  try {
    known_call = Learn(op, key, args, torch::jit::last(*stack, op->returns));
  } catch (const std::exception& error) {  // the next equal call retries
    Warn("a call of " + op->name() + " could not be looked up", error);
  }
  if (known_call != nullptr && known_call->region != nullptr) NotifyMiss(*known_call);
}

const KnownCall* EagerInterceptor::Impl::Learn(InterceptedOp* op, const CallKey& key,
                                               c10::ArrayRef<IValue> args,
                                               c10::ArrayRef<IValue> results) {
  const OwnWork own_work;
  auto known_call = std::make_unique<KnownCall>();
  known_call->hash = key.hash();
  known_call->words.append(key.words().begin(), key.words().end());
  Result<AtenCall> call = ReadAtenCall(op->op, args, results);
  // Another thread may have changed the settings since the key was made.
  if (SettingsWord(op->is_matrix_op) != key.settings()) return nullptr;
  if (call.ok()) {
    const std::string name = call->signature.Key();
    Result<RegionEntry*> entry =
        Resolver::Get().Resolve(RegionId(name), call->signature.Canonical(), key.device().index());
    if (entry.ok()) {
      known_call->region = *entry;
      known_call->inputs = std::move(call->inputs);
      known_call->others = std::move(call->others);
      known_call->label = "cudaforge::" + op->name() + " " + name.substr(0, 12);
    }
  }
  const KnownCall* const kept = known_call.get();
  const std::lock_guard lock(mutex);
  return op->Add(std::move(known_call)) ? kept : nullptr;
}

void EagerInterceptor::Impl::NotifyMiss(const KnownCall& known_call) {
  const RegionEntry& region = *known_call.region;
  if (IsCapturing(region.contract.device())) return;
  const uint64_t generation = g_generation.load();
  if (known_call.notified.exchange(generation) == generation) return;
  OnMiss handler;
  {
    const std::lock_guard lock(mutex);
    handler = on_miss;
  }
  const OwnWork own_work;
  std::exception_ptr ends_call;
  try {
    if (Resolver::Get().WouldLoad(region)) {
      const auto asked =
          Resolver::Get().Resolve(region.id, region.signature.Canonical(), region.device_index);
      CF_CHECK(asked.ok()) << region.key;
    }
    if (handler && region.ForEager() == nullptr) ends_call = handler(region);
  } catch (const std::exception& error) {
    Warn(region.signature.Describe() + " has no kernel and could not be recorded or forged", error);
  }
  if (ends_call) std::rethrow_exception(ends_call);
}

EagerInterceptor::EagerInterceptor() : impl_(new Impl) {
  HoldAcrossForks<EagerInterceptor>(&impl_->mutex);
}

EagerInterceptor& EagerInterceptor::Get() {
  static auto* const interceptor = new EagerInterceptor;
  return *interceptor;
}

Status EagerInterceptor::CanIntercept(std::string_view op) {
  return FindInterceptable(op).status();
}

Status EagerInterceptor::SetOps(const std::vector<std::string>& ops) {
  std::map<std::string, c10::OperatorHandle> selected;  // by the dispatcher's names
  for (const std::string& op : ops) {
    CF_ASSIGN_OR_RETURN(const c10::OperatorHandle one, FindInterceptable(op));
    selected.emplace(c10::toString(one.operator_name()), one);
  }
  // Called before taking the lock: NVIDIA's driver may fork when it starts.
  const bool has_gpu = at::getNumGPUs() > 0;
  const std::lock_guard lock(impl_->mutex);
  for (const auto& [name, found] : selected) {
    std::unique_ptr<InterceptedOp>& known = impl_->known[name];
    if (known == nullptr) {
      known = std::make_unique<InterceptedOp>(found,
                                              c10::BoxedKernel::makeFromFunction<&Impl::Kernel>());
      g_ops.Insert(Hash(known->op), known.get());
    }
    if (!known->active.load()) known->Activate(has_gpu);
  }
  for (const auto& [name, known] : impl_->known) {
    if (!selected.contains(name)) known->Deactivate();
  }
  return Status::Ok();
}

std::vector<std::string> EagerInterceptor::ops() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<std::string> names;
  for (const auto& [name, known] : impl_->known) {
    if (known->active.load()) names.push_back(name);
  }
  return names;
}

void EagerInterceptor::SetOnMiss(OnMiss on_miss) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->on_miss = std::move(on_miss);
  }
  Resolver::Get().RetryMissing();
  g_generation.fetch_add(1);
}

Json EagerInterceptor::Stats() const {
  const std::lock_guard lock(impl_->mutex);
  Json stats = Json::object();
  for (const auto& [name, op] : impl_->known) {
    if (Json counts = op->Stats(); !counts.is_null()) stats[name] = std::move(counts);
  }
  return stats;
}

void EagerInterceptor::ResetStats() {
  const std::lock_guard lock(impl_->mutex);
  for (const auto& [name, op] : impl_->known) op->ResetStats();
}

}  // namespace cudaforge
