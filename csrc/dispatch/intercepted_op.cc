#include "dispatch/intercepted_op.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "base/own_work.h"
#include "signature/aten_numerics.h"

namespace cudaforge {
namespace {

constexpr size_t kFirstCallSlots = 64;
constexpr size_t kCuda = 1;  // among kInterceptedKeys

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

}  // namespace

Override::Override(InterceptedOp* op, size_t key, c10::SafeKernelFunction previous, Handler handler)
    : op_(op), key_(key), previous_(std::move(previous)), handler_(handler) {}

void Override::CallPrevious(c10::DispatchKeySet keys, torch::jit::Stack* stack) const {
  const OwnWork inside;  // what that kernel calls is a part of this call, and looked up with it
  const Override* now = nullptr;
  try {
    return previous_.callBoxed(op_->op, keys, stack);
  } catch (const c10::Error& error) {
    // Said before anything is done with the arguments.
    if (!IsOfDeregistered(previous_, error)) throw;
    const std::lock_guard lock(*op_->mutex_);
    now = op_->Renew(*this);
    if (now == nullptr) throw;
  }
  now->previous_.callBoxed(op_->op, keys, stack);
}

InterceptedOp::InterceptedOp(Interceptable found, Override::Handler handler, std::mutex* mutex)
    : Interceptable(std::move(found)),
      is_matrix_op(IsMatrixOp(c10::toString(functional.operator_name()))),
      arguments(op.schema().arguments().size()),
      inputs(functional.schema().arguments().size()),
      returns(op.schema().returns().size()),
      calls_(kFirstCallSlots),
      name_(c10::toString(op.operator_name())),
      handler_(handler),
      mutex_(mutex) {}

Status InterceptedOp::Activate() {
  const Silenced silenced;
  active.store(true);
  for (size_t i = 0; i < kInterceptedKeys.size(); ++i) {
    if (!HasKernel(op, kInterceptedKeys[i])) continue;
    if (i == kCuda && at::getNumGPUs() == 0) continue;
    try {
      if (!StandsFirst(i)) Register(i);
    } catch (const c10::Error& error) {
      Deactivate();
      return Status::Unsupported(name_ + ": " + error.what_without_backtrace());
    }
  }
  return Status::Ok();
}

void InterceptedOp::Deactivate() {
  active.store(false);
  for (size_t i = 0; i < kInterceptedKeys.size(); ++i) {
    while (StandsFirst(i)) places_[i].registrations.pop_back();
  }
}

InterceptedOp::Made InterceptedOp::Make(size_t i, const Override* gone) {
  Place& place = places_[i];
  std::string kernels = op.dumpState();
  if (place.last && place.last->kernel != gone && place.kernels == kernels) return *place.last;
  auto kernel = std::make_unique<Override>(
      this, i, op.getComputedKernelForDispatchKey(kInterceptedKeys[i]), handler_);
  const Override* const made = kernel.get();
  kept_.push_back(c10::BoxedKernel::makeFromFunctor(std::move(kernel)));
  place.last = Made{made, kept_.back()};
  place.kernels = std::move(kernels);
  return *place.last;
}

void InterceptedOp::Register(size_t i, const Override* gone) {
  Made made = Make(i, gone);
  auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", kInterceptedKeys[i],
                                                  __FILE__, __LINE__);
  library->impl(name_.c_str(), torch::CppFunction::makeFromBoxedKernel(std::move(made.boxed)));
  places_[i].registrations.push_back({made.kernel, std::move(library)});
  places_[i].mark = op.getComputedKernelForDispatchKey(kInterceptedKeys[i]).debug();
}

bool InterceptedOp::StandsFirst(size_t i) const {
  const Place& place = places_[i];
  return !place.registrations.empty() &&
         op.getComputedKernelForDispatchKey(kInterceptedKeys[i]).debug() == place.mark;
}

const Override* InterceptedOp::Renew(const Override& gone) {
  const size_t i = gone.key_;
  std::vector<Registration>& registrations = places_[i].registrations;
  const bool registered = std::any_of(registrations.begin(), registrations.end(),
                                      [&](const Registration& one) { return one.kernel == &gone; });
  if (!registrations.empty() && !StandsFirst(i)) return nullptr;
  if (!registered)
    return registrations.empty() ? Make(i, &gone).kernel : registrations.back().kernel;
  if (registrations.back().kernel != &gone) return nullptr;
  const Silenced silenced;
  registrations.pop_back();
  if (!active.load()) return Make(i, &gone).kernel;
  Register(i, &gone);
  return registrations.back().kernel;
}

bool InterceptedOp::Keep(std::unique_ptr<const MetCall> call) {
  if (Find(call->hash, call->words) != nullptr) return false;
  met_.push_back(std::move(call));
  calls_.Insert(met_.back()->hash, met_.back().get());
  calls_met.store(met_.size(), std::memory_order_relaxed);
  return true;
}

Json InterceptedOp::Stats() const {
  int64_t calls = hits.load() + fallbacks.load();
  Json by_reason = Json::object();
  for (size_t i = 0; i < std::size(kMissNames); ++i) {
    const int64_t count = misses[i].load();
    calls += count;
    if (count > 0) by_reason[kMissNames[i]] = count;
  }
  if (calls == 0) return nullptr;
  return {{"calls", calls},
          {"hits", hits.load()},
          {"fallbacks", fallbacks.load()},
          {"misses", std::move(by_reason)}};
}

void InterceptedOp::ResetStats() {
  hits = 0;
  fallbacks = 0;
  for (auto& count : misses) count = 0;
}

}  // namespace cudaforge
