#include "dispatch/intercepted_op.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <utility>

#include "base/own_work.h"
#include "signature/aten_attention.h"
#include "signature/aten_numerics.h"
#include "signature/aten_schema.h"

namespace cudaforge {
namespace {

constexpr c10::DispatchKey kComposite = c10::DispatchKey::CompositeImplicitAutograd;
constexpr size_t kFirstCallSlots = 64;
constexpr size_t kCuda = 1;  // index in kInterceptedKeys

// Returns true if calls at `key` run a kernel of the overload's own. Some are composites of other
// operators at a key, as aten::_fused_rms_norm on a CPU.
bool HasKernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.hasKernelForDispatchKey(kComposite) ? op.hasKernelForDispatchKey(key)
                                                : op.hasComputedKernelForDispatchKey(key);
}

// Suppresses PyTorch's warning about the overridden kernel.
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

}  // namespace

Result<c10::OperatorHandle> FindInterceptable(std::string_view op) {
  CF_ASSIGN_OR_RETURN(c10::OperatorHandle handle, FindAtenOp(op));
  CF_RETURN_IF_ERROR(CheckPure(RegionOpOf(handle), op));
  if (ReturnsList(handle.schema())) {
    return Status::Unsupported(std::string(op) + " returns lists of tensors");
  }
  for (const c10::DispatchKey key : kInterceptedKeys) {
    if (HasKernel(handle, key)) return handle;
  }
  if (handle.hasKernelForDispatchKey(kComposite)) {
    return Status::Unsupported(
        std::string(op) +
        " is a composite of other operators (CompositeImplicitAutograd) without a "
        "kernel of its own: intercept the operators that it calls");
  }
  return Status::Unsupported(std::string(op) + " has no kernel for CPU or CUDA");
}

InterceptedOp::InterceptedOp(c10::OperatorHandle found, c10::BoxedKernel kernel)
    : op(std::move(found)),
      is_matrix_op(IsMatrixOp(c10::toString(op.operator_name()))),
      arguments(op.schema().arguments().size()),
      returns(op.schema().returns().size()),
      name_(c10::toString(op.operator_name())),
      kernel_(std::move(kernel)),
      calls_(kFirstCallSlots) {}

void InterceptedOp::CallPrevious(c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const OwnWork inside;  // ATen calls of that kernel are part of this call
  const size_t i = keys.has_backend(c10::BackendComponent::CUDABit) ? kCuda : 0;
  previous_[i].load(std::memory_order_acquire)->callBoxed(op, keys, stack);
}

void InterceptedOp::Activate(bool has_gpu) {
  const Silenced silenced;
  active.store(true);
  for (size_t i = 0; i < kInterceptedKeys.size(); ++i) {
    if (!HasKernel(op, kInterceptedKeys[i])) continue;
    if (i == kCuda && !has_gpu) continue;
    if (registrations_[i] == nullptr) Register(i);
  }
}

void InterceptedOp::Deactivate() {
  active.store(false);
  for (auto& registration : registrations_) registration.reset();
}

void InterceptedOp::Register(size_t i) {
  c10::SafeKernelFunction there = op.getComputedKernelForDispatchKey(kInterceptedKeys[i]);
  const c10::SafeKernelFunction* const last = previous_[i].load(std::memory_order_relaxed);
  // PyTorch's own kernels each have a source location and are never unloaded. Another library may
  // register repeatedly from the same line.
  const bool is_atens = there.debug().find("/aten/src/ATen/Register") != std::string::npos;
  if (last == nullptr || last->debug() != there.debug() || !is_atens) {
    kernels_.push_back(std::make_unique<const c10::SafeKernelFunction>(std::move(there)));
    previous_[i].store(kernels_.back().get(), std::memory_order_release);
  }
  registrations_[i] = std::make_unique<torch::Library>(torch::Library::IMPL, "aten",
                                                       kInterceptedKeys[i], __FILE__, __LINE__);
  registrations_[i]->impl(name_.c_str(), torch::CppFunction::makeFromBoxedKernel(kernel_));
}

bool InterceptedOp::Add(std::unique_ptr<const KnownCall> call) {
  if (Find(call->hash, call->words) != nullptr) return false;
  known_.push_back(std::move(call));
  calls_.Insert(known_.back()->hash, known_.back().get());
  calls_known.store(known_.size(), std::memory_order_relaxed);
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
