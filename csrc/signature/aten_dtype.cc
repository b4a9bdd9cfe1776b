// The dtypes of from_aten_region.h.
#include "signature/from_aten_region.h"

namespace cudaforge {

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

}  // namespace cudaforge
