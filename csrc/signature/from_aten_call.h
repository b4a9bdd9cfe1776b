// The signature of one ATen call, from what the dispatcher has of it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "signature/op_signature.h"
#include "signature/torch_compat.h"

namespace cudaforge {

// Where a call's arguments have a tensor: args[arg], or element `element` of that list.
struct TensorPlace {
  int arg = 0;
  int element = -1;

  const at::Tensor& In(c10::ArrayRef<c10::IValue> args) const;
};

// Whether a tensor's elements are where its sizes and strides say, and nothing else is to be said
// of it: strided, of known sizes, its memory not given back, not conjugated or negated lazily, its
// dimensions without names.
inline bool IsPlain(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.unsafeGetTensorImpl()->unsafe_storage() &&
         !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides() && !tensor.is_conj() &&
         !tensor.is_neg() && !HasNames(*tensor.unsafeGetTensorImpl()) &&
         tensor.unsafeGetTensorImpl()->storage_initialized();
}

// The alignment that a signature gives a tensor, in bytes: that of where its data begins, at most
// 16, on a CPU at most the element size (see NormalizeAten). Without elements: that maximum.
// REQUIRES: IsPlain.
inline int64_t KnownAlignment(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const uintptr_t most = tensor.is_cpu() ? impl->itemsize() : 16;
  if (impl->is_empty()) return static_cast<int64_t>(most);
  const auto begin = reinterpret_cast<uintptr_t>(impl->unsafe_storage().data());
  const auto offset = static_cast<uintptr_t>(impl->storage_offset()) * impl->itemsize();
  const uintptr_t bits = (begin + offset) | most;
  return static_cast<int64_t>(bits & (~bits + 1));
}

// A call as a region of one node, normalised.
struct AtenCall {
  OpSignature signature;
  std::vector<TensorPlace> inputs;  // in the signature's order; a tensor given twice is one input
  // By result of the call: None where it is the region's next output. Else what the call may return
  // as it is, which is none of them: an undefined tensor, or something of an attention kernel that
  // only a backward would read.
  std::vector<c10::IValue> others;
};

// `args`: all of the schema's, in its order, as before the call. `results`: what it returned.
// kUnsupported: an overload that no region holds (CheckPure of RegionOpOf), a list among its
// results, no element in any of them, attention for a backward or not as AsRegionCall takes it, an
// argument that the format cannot hold,
// tensors of several devices or of another layout, dtype or kind than regions have, a result that
// is one of the arguments.
Result<AtenCall> ReadAtenCall(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args,
                              c10::ArrayRef<c10::IValue> results);

}  // namespace cudaforge
