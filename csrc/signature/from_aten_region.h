// RegionProgram: runs a signature in ATen, by boxed calls through the dispatcher. It is the
// fallback without a winner, the reference for candidates, and, in fp64, their oracle.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "signature/op_signature.h"

namespace cudaforge {

// Makes equal calls have equal signatures. Converts attention kernels with AsRegionCall, fills in
// default arguments and moves kwarg-only arguments to "kwargs". On a CPU, lowers an input's
// alignment to its element size: memory maps and NumPy views begin anywhere, and CPU kernels need
// no more. kUnsupported: as CheckPure, and arguments that the format cannot hold.
Result<OpSignature> NormalizeAten(const OpSignature& signature);

// kUnsupported for dtypes that regions cannot have.
Result<DType> DTypeFromScalarType(at::ScalarType type);
at::ScalarType ToScalarType(DType dtype);

// Thrown by RunStrided if ATen returned another dtype or shape than the signature has. PyTorch's
// traces are not always exact.
class UnexpectedResult : public c10::Error {
  using c10::Error::Error;
};

class RegionProgram {
 public:
  // Looks up every overload and converts its literals. kUnsupported as NormalizeAten;
  // kInvalidArgument for arguments that do not fit the schema.
  static Result<std::unique_ptr<RegionProgram>> Create(const OpSignature& signature);

  // Runs the nodes in order. Outputs may have other strides than the signature (see RunStrided).
  // Throws what ATen throws. Thread-safe.
  std::vector<at::Tensor> Run(at::ArrayRef<at::Tensor> inputs) const;
  // As Run, but every output has the signature's strides and shares no storage with an input. Also
  // throws UnexpectedResult.
  std::vector<at::Tensor> RunStrided(at::ArrayRef<at::Tensor> inputs) const;
  // The oracle: floating inputs and dtype literals become float64. Means are corrected by
  // DefinedMean.
  std::vector<at::Tensor> RunFp64(at::ArrayRef<at::Tensor> inputs) const;
  // As Run, but calls `instead` before each call. If it returns true, it has replaced the arguments
  // on `stack` by the results, and the ATen call is skipped.
  using Instead = std::function<bool(size_t node, torch::jit::Stack* stack)>;
  std::vector<at::Tensor> RunWith(at::ArrayRef<at::Tensor> inputs, const Instead& instead) const;
  const OpSignature& signature() const;

 private:
  class Impl;
  explicit RegionProgram(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace cudaforge
