#include "dispatch/eager.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <pthread.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/append_only_table.h"
#include "base/own_work.h"
#include "dispatch/cuda_driver.h"
#include "dispatch/interceptable.h"
#include "dispatch/serve.h"
#include "signature/aten_numerics.h"

namespace cudaforge {
namespace {

using c10::DispatchKey;
using c10::IValue;
using torch::jit::Stack;

constexpr size_t kFirstCallSlots = 64;
constexpr size_t kFirstOpSlots = 512;
constexpr size_t kMostCalls = 1 << 15;  // met of one overload: a program may have ever new shapes

enum class Miss { kNew, kNoKernel, kUnsupported, kCapture, kTooMany };
constexpr const char* kMissNames[] = {"new", "no_kernel", "unsupported", "capture", "too_many"};

constexpr size_t kCuda = 1;  // among kInterceptedKeys

}  // namespace

namespace eager {

// One call that was met. Lives as long as the process. What every call reads is at the beginning,
// here and in Interception: in a program that does more than this, it comes from no near cache.
struct MetCall {
  uint64_t hash = 0;
  RegionEntry* region = nullptr;  // null: none holds it
  // The g_generation in which OnMiss was told of it.
  mutable std::atomic<uint64_t> told{0};
  c10::SmallVector<uint64_t, 32> words;
  std::vector<TensorPlace> inputs;  // of the region, among the call's arguments
  std::vector<IValue> others;       // as in AtenCall
  std::string label;                // for profilers
};

// One overload that is or was intercepted. Lives as long as the process: a call may still be in it.
struct Interception : Interceptable {
  Interception(Interceptable found, std::string full_name)
      : Interceptable(std::move(found)),
        is_matrix_op(IsMatrixOp(full_name)),
        arguments(op.schema().arguments().size()),
        inputs(functional.schema().arguments().size()),
        returns(op.schema().returns().size()),
        name(std::move(full_name)) {}

  const MetCall* Find(uint64_t hash, c10::ArrayRef<uint64_t> words) const {
    return calls.Find(
        hash, [=](const MetCall& met) { return met.hash == hash && words.equals(met.words); });
  }
  void Count(Miss reason) {
    misses[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  }

  std::atomic<bool> active{false};
  const bool is_matrix_op;
  // Of `arguments`, the first `inputs` are functional's; the others are written to.
  const size_t arguments, inputs, returns;
  // By key, the kernel that was there. Replaced, never freed: a call may be in it.
  std::array<std::atomic<const c10::SafeKernelFunction*>, kInterceptedKeys.size()> previous{};
  std::atomic<int64_t> hits{0}, fallbacks{0};
  std::array<std::atomic<int64_t>, std::size(kMissNames)> misses{};
  AppendOnlyTable<const MetCall> calls{kFirstCallSlots};  // added to under the interceptor's mutex
  std::atomic<size_t> calls_met{0};
  const std::string name;

  // Guarded by the interceptor's mutex.
  std::array<std::unique_ptr<torch::Library>, kInterceptedKeys.size()> registrations;
  std::vector<std::unique_ptr<const c10::SafeKernelFunction>> kernels;
  std::vector<std::unique_ptr<const MetCall>> met;
};

}  // namespace eager

namespace {

using eager::Interception;
using eager::MetCall;

// By operator. Never destroyed: calls may come during interpreter shutdown.
AppendOnlyTable<Interception>& g_ops = *new AppendOnlyTable<Interception>(kFirstOpSlots);

// Of the address of what the dispatcher has of the operator, which all its handles share.
size_t Hash(const c10::OperatorHandle& op) {
  return std::hash<c10::OperatorHandle>{}(op)*0x9E3779B97F4A7C15u >> 32;
}

Interception* FindInterception(const c10::OperatorHandle& op) {
  return g_ops.Find(Hash(op), [&](const Interception& one) { return one.op == op; });
}

// How often SetOnMiss was called: what was met before is told anew.
std::atomic<uint64_t> g_generation{1};

// PyTorch says that a kernel is overridden, which is what was asked for.
class Silenced {
 public:
  Silenced() : guard_(&silence_) {}

 private:
  struct Silence : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };
  Silence silence_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

// Whether an error is that of calling `kernel` after the library that it came from has gone.
bool IsOfDeregistered(const c10::SafeKernelFunction& kernel, const c10::Error& error) {
  return error.msg() == "SafeKernelFunction has been invalidated " + kernel.debug();
}

// False where the call has no key, or the default dtype, which results may have and signatures do
// not, is not the usual one.
bool ReadKey(const Interception& op, const Stack& stack, CallKey* key) {
  return c10::get_default_dtype() == caffe2::TypeMeta::Make<float>() &&
         key->Read(torch::jit::last(stack, op.arguments), NumericsWord(op.is_matrix_op));
}

// The call, whose arguments lie on `stack`, by its kernel: the results take their place.
bool ServeCall(const Interception& op, const MetCall& met, const Winner& winner, Stack* stack) {
  const c10::ArrayRef<IValue> args = torch::jit::last(*stack, op.arguments);
  TensorPointers tensors;
  for (const TensorPlace& place : met.inputs) tensors.push_back(&place.In(args));
  OutputTensors made;
  for (const IValue& out : args.slice(op.inputs)) made.push_back(out.toTensor());
  if (!Serve(met.region, winner, tensors, &made)) return false;
  torch::jit::drop(*stack, op.arguments);
  size_t next = 0;
  for (const IValue& other : met.others) {
    stack->push_back(other.isNone() ? IValue(std::move(made[next++])) : other);
  }
  return true;
}

void WarnOf(const std::string& what, const std::exception& error) {
  Resolver::Get().WarnOnce("cudaforge: a call of " + what +
                           " could not be looked up, PyTorch runs it: " + error.what());
}

// Guarded by the interceptor's mutex. False where another thread has met the same call.
bool Keep(Interception* op, std::unique_ptr<const MetCall> call) {
  if (op->Find(call->hash, call->words) != nullptr) return false;
  op->met.push_back(std::move(call));
  op->calls.Insert(op->met.back()->hash, op->met.back().get());
  op->calls_met.store(op->met.size(), std::memory_order_relaxed);
  return true;
}

}  // namespace

struct EagerInterceptor::Impl {
  // Guards everything below. Held while PyTorch's dispatcher registers kernels, never while an
  // operator or OnMiss runs; a fork waits for it (see pthread_atfork).
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<eager::Interception>> known;
  OnMiss on_miss;

  Status Activate(Interception* op);
  static void Deactivate(Interception* op);
  // Stands before the kernel that is there at kInterceptedKeys[i].
  static void Register(Interception* op, size_t i);

  // The kernel that was there. Where it has been deregistered since, the one that is there now.
  static void CallPrevious(Interception* op, c10::DispatchKeySet keys, Stack* stack);

  // A call that was not met before: runs as it would, then is looked up.
  void Meet(Interception* op, const CallKey& key, c10::DispatchKeySet keys, Stack* stack);
  // Null: another thread has met it, or nothing can be said of it.
  const MetCall* Learn(Interception* op, const CallKey& key, c10::ArrayRef<IValue> args,
                       c10::ArrayRef<IValue> results);
  // Tells OnMiss of a call without a winner, once in a generation.
  void Tell(const MetCall& met);

  // Every overload's kernel. It has no state of its own, as PyTorch's dispatcher may call it while
  // another thread replaces it.
  static void Kernel(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack);
};

void EagerInterceptor::Impl::CallPrevious(Interception* op, c10::DispatchKeySet keys,
                                          Stack* stack) {
  const OwnWork inside;  // what that kernel calls is a part of this call, and looked up with it
  const size_t i = keys.has_backend(c10::BackendComponent::CUDABit) ? kCuda : 0;
  const c10::SafeKernelFunction* kernel = op->previous[i].load(std::memory_order_acquire);
  try {
    return kernel->callBoxed(op->op, keys, stack);
  } catch (const c10::Error& error) {
    // Said before anything is done with the arguments.
    if (!IsOfDeregistered(*kernel, error)) throw;
  }
  {
    const std::lock_guard lock(Get().impl_->mutex);
    if (op->previous[i].load(std::memory_order_relaxed) == kernel) {
      const Silenced silenced;
      op->registrations[i].reset();
      Register(op, i);
      if (!op->active.load()) op->registrations[i].reset();
    }
    kernel = op->previous[i].load(std::memory_order_relaxed);
  }
  kernel->callBoxed(op->op, keys, stack);
}

void EagerInterceptor::Impl::Kernel(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                                    Stack* stack) {
  Interception& op = *FindInterception(handle);
  if (OwnWork::InForce() || !op.active.load(std::memory_order_relaxed)) [[unlikely]] {
    return CallPrevious(&op, keys, stack);
  }
  CallKey key;
  if (!ReadKey(op, *stack, &key)) [[unlikely]] {
    op.Count(Miss::kUnsupported);
    return CallPrevious(&op, keys, stack);
  }
  const MetCall* met = op.Find(key.hash(), key.words());
  if (met == nullptr) [[unlikely]]
    return Get().impl_->Meet(&op, key, keys, stack);
  if (met->region == nullptr) {
    op.Count(Miss::kUnsupported);
    return CallPrevious(&op, keys, stack);
  }
  const Winner* winner = met->region->ForEager();
  if (winner == nullptr) {
    if (met->region->quarantined.load(std::memory_order_relaxed)) [[unlikely]] {
      Resolver::Get().CountFallback(met->region, Fallback::kQuarantined);
      op.fallbacks.fetch_add(1, std::memory_order_relaxed);
      return CallPrevious(&op, keys, stack);
    }
    op.Count(Miss::kNoKernel);
    met->region->unserved.fetch_add(1, std::memory_order_relaxed);
    CallPrevious(&op, keys, stack);
    if (met->told.load(std::memory_order_relaxed) != g_generation.load(std::memory_order_relaxed))
        [[unlikely]] {
      Get().impl_->Tell(*met);
    }
    return;
  }
  RECORD_USER_SCOPE(met->label);
  if (ServeCall(op, *met, *winner, stack)) {
    op.hits.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  op.fallbacks.fetch_add(1, std::memory_order_relaxed);
  CallPrevious(&op, keys, stack);
}

void EagerInterceptor::Impl::Meet(Interception* op, const CallKey& key, c10::DispatchKeySet keys,
                                  Stack* stack) {
  const bool captured = key.device().is_cuda() && IsCapturing(CurrentStream(key.device()));
  if (captured || op->calls_met.load(std::memory_order_relaxed) >= kMostCalls) {
    op->Count(captured ? Miss::kCapture : Miss::kTooMany);
    return CallPrevious(op, keys, stack);
  }
  op->Count(Miss::kNew);
  const std::vector<IValue> args = torch::jit::last(*stack, op->arguments).vec();
  CallPrevious(op, keys, stack);
  const MetCall* met = nullptr;
  try {
    met = Learn(op, key, args, torch::jit::last(*stack, op->returns));
  } catch (const std::exception& error) {
    WarnOf(op->name, error);
  }
  if (met != nullptr && met->region != nullptr) Tell(*met);
}

const MetCall* EagerInterceptor::Impl::Learn(Interception* op, const CallKey& key,
                                             c10::ArrayRef<IValue> args,
                                             c10::ArrayRef<IValue> results) {
  const OwnWork own_work;
  auto met = std::make_unique<MetCall>();
  met->hash = key.hash();
  met->words.append(key.words().begin(), key.words().end());
  Result<AtenCall> call = ReadCall(*op, key, args, results);
  // Settings that another thread has changed meanwhile are not those of the key.
  if (NumericsWord(op->is_matrix_op) != key.words()[0]) return nullptr;
  if (call.ok()) {
    const std::string name = call->signature.Key();
    Result<RegionEntry*> entry =
        Resolver::Get().Resolve(RegionId(name), call->signature.Canonical(), key.device().index());
    if (entry.ok()) {
      met->region = *entry;
      met->inputs = std::move(call->inputs);
      met->others = std::move(call->others);
      met->label = "cudaforge::" + op->name + " " + name.substr(0, 12);
    }
  }
  const MetCall* const kept = met.get();
  const std::lock_guard lock(mutex);
  return Keep(op, std::move(met)) ? kept : nullptr;
}

void EagerInterceptor::Impl::Tell(const MetCall& met) {
  const RegionEntry& region = *met.region;
  const c10::Device device = region.contract.device();
  if (device.is_cuda() && IsCapturing(CurrentStream(device))) return;
  const uint64_t generation = g_generation.load();
  if (met.told.exchange(generation) == generation) return;
  OnMiss told;
  {
    const std::lock_guard lock(mutex);
    told = on_miss;
  }
  const OwnWork own_work;
  std::exception_ptr ends_call;
  try {
    const std::string text = region.signature.Canonical();
    if (Resolver::Get().WantsWinner(region)) {
      CF_CHECK(Resolver::Get().Resolve(region.id, text, region.device_index).ok()) << region.key;
    }
    if (told && region.ForEager() == nullptr) {
      ends_call = told(region, text);
    }
  } catch (const std::exception& error) {
    WarnOf(region.signature.Describe(), error);
  }
  if (ends_call) std::rethrow_exception(ends_call);
}

Status EagerInterceptor::Impl::Activate(Interception* op) {
  const Silenced silenced;
  op->active.store(true);
  for (size_t i = 0; i < kInterceptedKeys.size(); ++i) {
    if (!HasKernel(op->op, kInterceptedKeys[i])) continue;
    if (i == kCuda && at::getNumGPUs() == 0) continue;
    try {
      Register(op, i);
    } catch (const c10::Error& error) {
      Deactivate(op);
      return Status::Unsupported(op->name + ": " + error.what_without_backtrace());
    }
  }
  return Status::Ok();
}

void EagerInterceptor::Impl::Register(Interception* op, size_t i) {
  const auto& name = op->op.operator_name();
  const std::string short_name = name.name.substr(name.name.find("::") + 2) +
                                 (name.overload_name.empty() ? "" : "." + name.overload_name);
  op->kernels.push_back(std::make_unique<const c10::SafeKernelFunction>(
      op->op.getComputedKernelForDispatchKey(kInterceptedKeys[i])));
  op->previous[i].store(op->kernels.back().get(), std::memory_order_release);
  op->registrations[i] = std::make_unique<torch::Library>(torch::Library::IMPL, "aten",
                                                          kInterceptedKeys[i], __FILE__, __LINE__);
  op->registrations[i]->impl(short_name.c_str(),
                             torch::CppFunction::makeFromBoxedFunction<&Kernel>());
}

void EagerInterceptor::Impl::Deactivate(Interception* op) {
  op->active.store(false);
  for (auto& registration : op->registrations) registration.reset();
}

EagerInterceptor::EagerInterceptor() : impl_(new Impl) {
  static std::mutex* mutex = &impl_->mutex;
  pthread_atfork([] { mutex->lock(); }, [] { mutex->unlock(); }, [] { mutex->unlock(); });
}

EagerInterceptor& EagerInterceptor::Get() {
  static auto* const interceptor = new EagerInterceptor;
  return *interceptor;
}

Status EagerInterceptor::CanIntercept(std::string_view op) {
  return FindInterceptable(op).status();
}

Status EagerInterceptor::SetOps(const std::vector<std::string>& ops) {
  std::vector<Interceptable> found;
  for (const std::string& op : ops) {
    CF_ASSIGN_OR_RETURN(Interceptable one, FindInterceptable(op));
    found.push_back(std::move(one));
  }
  const std::lock_guard lock(impl_->mutex);
  std::vector<Interception*> begun;
  for (size_t i = 0; i < ops.size(); ++i) {
    std::unique_ptr<Interception>& known = impl_->known[ops[i]];
    if (known == nullptr) {
      known = std::make_unique<Interception>(found[i], ops[i]);
      g_ops.Insert(Hash(known->op), known.get());
    }
    if (known->active.load()) continue;
    if (const Status status = impl_->Activate(known.get()); !status.ok()) {
      for (Interception* one : begun) Impl::Deactivate(one);
      return status;
    }
    begun.push_back(known.get());
  }
  for (const auto& [name, known] : impl_->known) {
    const bool wanted = std::find(ops.begin(), ops.end(), name) != ops.end();
    if (!wanted && known->active.load()) Impl::Deactivate(known.get());
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
  Resolver::Get().AskAgain();
  g_generation.fetch_add(1);
}

Json EagerInterceptor::Stats() const {
  const std::lock_guard lock(impl_->mutex);
  Json stats = Json::object();
  for (const auto& [name, op] : impl_->known) {
    int64_t calls = op->hits.load() + op->fallbacks.load();
    Json misses = Json::object();
    for (size_t i = 0; i < std::size(kMissNames); ++i) {
      const int64_t count = op->misses[i].load();
      calls += count;
      if (count > 0) misses[kMissNames[i]] = count;
    }
    if (calls == 0) continue;
    stats[name] = {{"calls", calls},
                   {"hits", op->hits.load()},
                   {"fallbacks", op->fallbacks.load()},
                   {"misses", std::move(misses)}};
  }
  return stats;
}

void EagerInterceptor::ResetStats() {
  const std::lock_guard lock(impl_->mutex);
  for (const auto& [name, op] : impl_->known) {
    op->hits = 0;
    op->fallbacks = 0;
    for (auto& count : op->misses) count = 0;
  }
}

}  // namespace cudaforge
