#include "dispatch/interceptable.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <optional>
#include <string>
#include <vector>

#include "signature/aten_attention.h"
#include "signature/aten_schema.h"

namespace cudaforge {
namespace {

constexpr c10::DispatchKey kComposite = c10::DispatchKey::CompositeImplicitAutograd;

}  // namespace

bool HasKernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.hasKernelForDispatchKey(kComposite) ? op.hasKernelForDispatchKey(key)
                                                : op.hasComputedKernelForDispatchKey(key);
}

Result<Interceptable> FindInterceptable(std::string_view op) {
  CF_ASSIGN_OR_RETURN(c10::OperatorHandle handle, FindAtenOp(op));
  const std::optional<c10::OperatorHandle> functional = FunctionalOf(handle);
  const c10::OperatorHandle read = functional.value_or(handle);
  CF_RETURN_IF_ERROR(CheckPure(RegionOpOf(read), op));
  if (ReturnsList(read.schema())) {
    return Status::Unsupported(std::string(op) + " returns lists of tensors");
  }
  if (functional && handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) {
    const std::string called = c10::toString(functional->operator_name());
    return Status::Unsupported(
        std::string(op) + " has no kernel of its own, it calls " + called +
        (FindInterceptable(called).ok() ? ", which can be intercepted" : ""));
  }
  for (const c10::DispatchKey key : kInterceptedKeys) {
    if (HasKernel(handle, key)) return Interceptable{handle, read};
  }
  if (handle.hasKernelForDispatchKey(kComposite)) {
    return Status::Unsupported(std::string(op) +
                               " is made of other operators (CompositeImplicitAutograd) and has no "
                               "kernel of its own: those that it calls can be intercepted");
  }
  return Status::Unsupported(std::string(op) + " has no kernel for CPU or CUDA");
}

Result<AtenCall> ReadCall(const Interceptable& op, const CallKey& key,
                          c10::ArrayRef<c10::IValue> args, c10::ArrayRef<c10::IValue> results) {
  if (!op.writes_out()) return ReadAtenCall(op.op, args, results);
  CallKey after;
  if (!after.Read(args, key.settings()) || !after.words().equals(key.words())) {
    return Status::Unsupported("an out argument that was resized");
  }
  const size_t given = op.functional.schema().arguments().size();
  const c10::ArrayRef<c10::IValue> inputs = args.slice(0, given), outs = args.slice(given);
  CF_RETURN_IF_ERROR(CheckCall(op.functional.schema(), inputs));
  torch::jit::Stack stack = inputs.vec();
  try {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::impl::ExcludeDispatchKeyGuard below_autocast(c10::autocast_dispatch_keyset);
    op.functional.callBoxed(&stack);
  } catch (const c10::Error& error) {  // of memory that is not there, say
    return Status::Unsupported(error.what_without_backtrace());
  }
  CF_ASSIGN_OR_RETURN(AtenCall call, ReadAtenCall(op.functional, inputs, stack));
  for (size_t i = 0; i < outs.size(); ++i) {
    const at::Tensor &out = outs[i].toTensor(), &like = stack[i].toTensor();
    const bool fits = out.defined() && like.defined() && out.dtype() == like.dtype() &&
                      out.device() == like.device() && out.sizes() == like.sizes() &&
                      out.strides() == like.strides();
    if (!fits) return Status::Unsupported("an out argument unlike the result");
    const auto shares = [&out](const at::Tensor& other) { return out.is_alias_of(other); };
    for (const TensorPlace& place : call.inputs) {
      if (shares(place.In(args))) return Status::Unsupported("an out argument that is an input");
    }
    for (size_t j = 0; j < i; ++j) {
      if (shares(outs[j].toTensor())) return Status::Unsupported("out arguments that overlap");
    }
  }
  return call;
}

}  // namespace cudaforge
