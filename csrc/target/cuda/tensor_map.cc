#include "target/cuda/tensor_map.h"

#include <bit>
#include <cstdint>
#include <vector>

namespace cudaforge {
namespace {

// Never read. Aligned as the driver requires, and not null, which drivers before CUDA 12.6 refuse.
constexpr uintptr_t kPlaceholderAddress = 1 << 16;

int TensorMapTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return cu::kTensorMapFloat32;
    case DType::kFloat16:
      return cu::kTensorMapFloat16;
    case DType::kBFloat16:
      return cu::kTensorMapBFloat16;
    case DType::kFloat64:
      return cu::kTensorMapFloat64;
    case DType::kInt64:
      return cu::kTensorMapInt64;
    case DType::kInt32:
      return cu::kTensorMapInt32;
    case DType::kBool:
      break;
  }
  return -1;  // refused by EvaluateTensorMap, and by the driver
}

// CUtensorMapSwizzle: 0, 1, 2, 3 for 0, 32, 64, 128 bytes.
int TensorMapSwizzleOf(int64_t bytes) {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(bytes) / 32));
}

}  // namespace

Result<cu::TensorMap> EncodeTensorMap(const cu::DriverApi& api, const EvaluatedTensorMap& map) {
  if (api.TensorMapEncodeTiled == nullptr || api.TensorMapReplaceAddress == nullptr) {
    return Status::Unavailable(
        "the NVIDIA driver cannot make tensor maps; install driver 525 (CUDA 12) or newer");
  }
  std::vector<uint64_t> strides = map.strides;
  strides.resize(map.sizes.size());  // not null for one dimension
  const std::vector<uint32_t> element_strides(map.sizes.size(), 1);
  cu::TensorMap encoded;
  CF_RETURN_IF_ERROR(api.Check(
      api.TensorMapEncodeTiled(
          &encoded, TensorMapTypeOf(map.dtype), static_cast<uint32_t>(map.sizes.size()),
          reinterpret_cast<void*>(kPlaceholderAddress), map.sizes.data(), strides.data(),
          map.box.data(), element_strides.data(), cu::kTensorMapInterleaveNone,
          TensorMapSwizzleOf(map.swizzle), cu::kTensorMapPromotion128B, cu::kTensorMapFillZeros),
      "cuTensorMapEncodeTiled", StatusCode::kInvalidArgument));
  return encoded;
}

}  // namespace cudaforge
