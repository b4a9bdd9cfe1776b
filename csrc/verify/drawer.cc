#include "verify/drawer.h"

#include <algorithm>
#include <string>

#include "base/parallel.h"
#include "verify/draw_loops.h"

namespace cudaforge {
namespace {

using device::DrawType;

// Elements that a thread draws at a time, enough to reuse adjacent rows.
constexpr int64_t kDrawGrain = int64_t{1} << 18;
constexpr unsigned kDrawThreads = 256;
constexpr int64_t kDrawItems = 4;  // elements per thread of a kernel

static_assert(static_cast<int>(DType::kFloat32) == static_cast<int>(DrawType::kFloat32) &&
              static_cast<int>(DType::kFloat16) == static_cast<int>(DrawType::kFloat16) &&
              static_cast<int>(DType::kBFloat16) == static_cast<int>(DrawType::kBFloat16) &&
              static_cast<int>(DType::kFloat64) == static_cast<int>(DrawType::kFloat64) &&
              static_cast<int>(DType::kInt64) == static_cast<int>(DrawType::kInt64) &&
              static_cast<int>(DType::kInt32) == static_cast<int>(DrawType::kInt32) &&
              static_cast<int>(DType::kBool) == static_cast<int>(DrawType::kBool));

}  // namespace

Result<std::unique_ptr<Drawer>> Drawer::Create(DeviceType device, OwnKernels* kernels) {
  if ((device == DeviceType::kCuda) != (kernels != nullptr)) {
    return Status::InvalidArgument("a drawer needs kernels on a GPU, and none on the CPU");
  }
  return std::unique_ptr<Drawer>(new Drawer(kernels));
}

Status Drawer::Draw(const DrawSet& set, const OpSignature& signature, uint64_t seed,
                    std::span<void* const> storage) const {
  if (set.tensors.size() != signature.inputs.size() || storage.size() != set.tensors.size()) {
    return Status::InvalidArgument("a set of other inputs");
  }
  for (size_t i = 0; i < set.tensors.size(); ++i) {
    device::DrawnTensor tensor = set.tensors[i];
    const TensorSpec& spec = signature.inputs[i];
    if (tensor.elements * DTypeSize(spec.dtype) != spec.StorageBytes() ||
        static_cast<int>(tensor.type) != static_cast<int>(spec.dtype)) {
      return Status::InvalidArgument("a set of other sizes");
    }
    if (tensor.elements == 0) continue;
    device::DrawKey key = device::DrawKeyOf(seed, tensor.stream);
    if (kernels_ == nullptr) {
      ParallelChunks(tensor.elements, kDrawGrain, [&](int64_t, int64_t begin, int64_t end) {
        DrawRange(tensor, key, begin, end, storage[i]);
      });
      continue;
    }
    const int64_t blocks = ChunkCount(tensor.elements, kDrawThreads * kDrawItems);
    const auto grid =
        static_cast<unsigned>(std::min<int64_t>(blocks, int64_t{32} * kernels_->multiprocessors()));
    void* address = storage[i];
    void* const params[] = {&tensor, &key, static_cast<void*>(&address)};
    CF_RETURN_IF_ERROR(
        kernels_->Launch("draw_" + std::string(DTypeName(spec.dtype)), grid, kDrawThreads, params));
  }
  return Status::Ok();
}

}  // namespace cudaforge
