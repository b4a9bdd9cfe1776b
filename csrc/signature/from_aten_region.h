// RegionProgram: a signature made runnable by ATen, through the dispatcher, with boxed calls. It is
// the fallback when there is no winner, the reference that winners are compared with, and in fp64
// their oracle.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "signature/op_signature.h"

namespace cudaforge {

// Makes calls of attention's kernels those of AsRegionCall, fills in default arguments and moves
// kwarg-only arguments to "kwargs", so that equal calls have
// equal signatures. On a CPU an input's alignment becomes that of its elements: memory maps, files
// and NumPy's views begin anywhere, and CPU kernels need no more. kUnsupported: an overload that
// does not exist, mutates, returns views, draws random numbers, or takes arguments that the format
// cannot hold.
Result<OpSignature> NormalizeAten(const OpSignature& signature);

// kUnsupported for the dtypes that no region has.
Result<DType> DTypeFromScalarType(at::ScalarType type);
at::ScalarType ToScalarType(DType dtype);

// What RunStrided throws where ATen's kernel gave another dtype or shape than the signature has:
// signatures come of PyTorch's traces, which do not always say what a kernel does.
class UnexpectedResult : public c10::Error {
  using c10::Error::Error;
};

class RegionProgram {
 public:
  // Looks up every overload and pre-converts its literals. kUnsupported as NormalizeAten;
  // kInvalidArgument for arguments that do not fit the schema.
  static Result<std::unique_ptr<RegionProgram>> Create(const OpSignature& signature);

  // Runs the nodes in order; the outputs may have other strides than the signature says (see
  // RunStrided). Throws what ATen throws. Thread-safe.
  std::vector<at::Tensor> Run(at::ArrayRef<at::Tensor> inputs) const;
  // As Run; every output has exactly the signature's strides and shares no storage with any input.
  // Throws UnexpectedResult, too.
  std::vector<at::Tensor> RunStrided(at::ArrayRef<at::Tensor> inputs) const;
  // The oracle: floating inputs upcast to fp64, dtype literals of floating types replaced by
  // float64; means that ATen's running update made NaN are those of the definition (aten_means.h).
  std::vector<at::Tensor> RunFp64(at::ArrayRef<at::Tensor> inputs) const;
  // As Run, but asks `instead` before each call: where it returns true, `stack` holds the results
  // in place of the arguments, and the call is not made.
  using Instead = std::function<bool(size_t node, torch::jit::Stack* stack)>;
  std::vector<at::Tensor> RunWith(at::ArrayRef<at::Tensor> inputs, const Instead& instead) const;
  const OpSignature& signature() const;

 private:
  class Impl;
  explicit RegionProgram(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace cudaforge
