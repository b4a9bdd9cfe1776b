// Makes the signature of one ATen call, from the dispatcher's data.
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

// The place of a tensor in a call's arguments: args[arg], or element `element` of that list.
struct TensorPlace {
  int arg = 0;
  int element = -1;

  const at::Tensor& In(c10::ArrayRef<c10::IValue> args) const;
};

// Returns true if a tensor is fully described by data pointer, sizes and strides. It is strided,
// has known sizes and memory, no lazy conjugation or negation, and no named dimensions.
inline bool IsPlain(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.unsafeGetTensorImpl()->unsafe_storage() &&
         !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides() && !tensor.is_conj() &&
         !tensor.is_neg() && !HasNames(*tensor.unsafeGetTensorImpl()) &&
         tensor.unsafeGetTensorImpl()->storage_initialized();
}

// Returns the alignment of the tensor's data in a signature, in bytes: at most 16, on a CPU at most
// the element size (see NormalizeAten). That maximum if the tensor is empty. REQUIRES: IsPlain.
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
  // One entry per result of the call. None: the region's next output. Otherwise the value to return
  // in that place: an undefined tensor, or something that only a backward of attention would read.
  std::vector<c10::IValue> others;
};

// Reads a call. `args`: all of the schema's, in its order, before the call. `results`: what it
// returned. kUnsupported: an overload that no region can hold (CheckPure of RegionOpOf); attention
// that AsRegionCall or IsForBackward excludes; an argument that the format cannot hold; tensors of
// several devices, or with an unsupported layout or dtype; a list among the results, only empty
// results, or a result that is one of the arguments.
Result<AtenCall> ReadAtenCall(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args,
                              c10::ArrayRef<c10::IValue> results);

}  // namespace cudaforge
