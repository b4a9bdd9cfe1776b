// The tensor half of from_aten_region.h: dtypes and specs.
#include <algorithm>
#include <bit>

#include "signature/from_aten_region.h"

namespace cudaforge {
namespace {

constexpr int64_t kMaxAlignment = 64;

// What the data pointer is a multiple of; a fake tensor has none, and promises its element size
// only.
int64_t KnownAlignment(const at::Tensor& tensor) {
  const auto element = static_cast<int64_t>(tensor.element_size());
  if (tensor.is_meta() || tensor.key_set().has(c10::DispatchKey::Python)) return element;
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  if (address == 0) return kMaxAlignment;
  const int zeros = std::min(std::countr_zero(address), 6);
  return std::max(element, int64_t{1} << zeros);
}

}  // namespace

Result<DType> DTypeFromScalarType(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::kFloat32;
    case at::kHalf:
      return DType::kFloat16;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kDouble:
      return DType::kFloat64;
    case at::kLong:
      return DType::kInt64;
    case at::kInt:
      return DType::kInt32;
    case at::kBool:
      return DType::kBool;
    default:
      return Status::Unsupported(std::string("dtype ") + c10::toString(type));
  }
}

at::ScalarType ToScalarType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kFloat64:
      return at::kDouble;
    case DType::kInt64:
      return at::kLong;
    case DType::kInt32:
      return at::kInt;
    case DType::kBool:
      return at::kBool;
  }
  CF_CHECK(false) << "not a DType";
  return at::kFloat;
}

Result<TensorSpec> SpecFromTensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return Status::Unsupported("an undefined tensor");
  if (tensor.layout() != at::kStrided || tensor.is_quantized() || tensor.is_nested()) {
    return Status::Unsupported("a tensor that is not plain strided memory");
  }
  if (!tensor.is_cpu() && !tensor.is_cuda() && !tensor.is_meta()) {
    return Status::Unsupported("a tensor on device " + tensor.device().str());
  }
  if (tensor.is_conj() || tensor.is_neg()) {
    return Status::Unsupported("a tensor with a lazy conjugation or negation");
  }
  if (tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    return Status::Unsupported("a tensor of symbolic size");
  }
  TensorSpec spec;
  CF_ASSIGN_OR_RETURN(spec.dtype, DTypeFromScalarType(tensor.scalar_type()));
  spec.sizes = tensor.sizes().vec();
  spec.strides = tensor.strides().vec();
  spec.alignment = KnownAlignment(tensor);
  return spec;
}

}  // namespace cudaforge
