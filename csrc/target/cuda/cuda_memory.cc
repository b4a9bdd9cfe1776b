#include "target/cuda/cuda_memory.h"

#include <algorithm>
#include <utility>

#include "base/integers.h"

namespace cudaforge {
namespace {

constexpr int64_t kUsualGranule = int64_t{2} << 20;

cu::AllocationProperties PropertiesOn(const CudaContext& context) {
  return {.location = {.device = context.device()}};
}

// Owns a memory handle. Mappings and exported descriptors outlive it.
class OwnedHandle {
 public:
  OwnedHandle(const cu::DriverApi& api, cu::MemoryHandle handle) : api_(api), handle_(handle) {}
  OwnedHandle(const OwnedHandle&) = delete;
  OwnedHandle& operator=(const OwnedHandle&) = delete;
  ~OwnedHandle() { api_.MemRelease(handle_); }
  cu::MemoryHandle get() const { return handle_; }

 private:
  const cu::DriverApi& api_;
  cu::MemoryHandle handle_;
};

// Reserved addresses: guards on both sides of `bytes` bytes at `data`.
struct Reserved {
  cu::DevicePtr base = 0;
  size_t size = 0;
  cu::DevicePtr data = 0;
  size_t bytes = 0;
};

void Unmap(const CudaContext& context, const Reserved& reserved, bool mapped) {
  const cu::DriverApi& api = context.api();
  if (context.MakeCurrent().ok()) api.ContextSynchronize();  // kernels may still use the memory
  if (mapped) api.MemUnmap(reserved.data, reserved.bytes);
  api.MemAddressFree(reserved.base, reserved.size);
}

Result<DeviceBuffer> MapHandle(const CudaContextPtr& context, cu::MemoryHandle handle,
                               int64_t bytes, bool writable, int64_t shift) {
  CF_CHECK(shift >= 0 && shift < kMapShifts);
  const cu::DriverApi& api = context->api();
  const int64_t granule = CudaGranule(*context);
  Reserved reserved;
  reserved.bytes = static_cast<size_t>(bytes);
  reserved.size = static_cast<size_t>(bytes + 2 * kMapGuardBytes + 2 * kMapShifts * granule);
  CF_RETURN_IF_ERROR(context->Check(api.MemAddressReserve(&reserved.base, reserved.size, 0, 0, 0),
                                    "cuMemAddressReserve"));
  const auto first = static_cast<int64_t>(reserved.base) + kMapGuardBytes;
  const int64_t data = RoundUp(first, kMapShifts * granule) + shift * granule;
  reserved.data = static_cast<cu::DevicePtr>(data);
  // Errors of these calls are not the device's fault: the descriptor may name other memory.
  if (const cu::Result error = api.MemMap(reserved.data, reserved.bytes, 0, handle, 0);
      error != 0) {
    Unmap(*context, reserved, /*mapped=*/false);
    return api.Check(error, "cuMemMap");
  }
  DeviceBuffer buffer(reinterpret_cast<void*>(reserved.data), bytes,
                      [context, reserved](void*) { Unmap(*context, reserved, /*mapped=*/true); });
  const cu::MemoryAccess access{.location = {.device = context->device()},
                                .access = writable ? 3 : 1};
  CF_RETURN_IF_ERROR(context->Check(api.MemSetAccess(reserved.data, reserved.bytes, &access, 1),
                                    "cuMemSetAccess"));
  return buffer;
}

}  // namespace

int64_t CudaGranule(const CudaContext& context) {
  size_t bytes = 0;
  const cu::AllocationProperties properties = PropertiesOn(context);
  const cu::Result error =
      context.api().MemGetAllocationGranularity(&bytes, &properties, cu::kGranularityMinimum);
  if (error != 0 || bytes == 0) return kUsualGranule;  // Share reports the error
  return static_cast<int64_t>(bytes);
}

Result<SharedMemory> ShareCudaMemory(const CudaContextPtr& context, int64_t bytes) {
  CF_CHECK(bytes >= 0) << "shared memory of " << bytes << " bytes";
  CF_RETURN_IF_ERROR(context->MakeCurrent());
  const cu::DriverApi& api = context->api();
  const int64_t rounded = RoundUp(std::max(bytes, int64_t{1}), CudaGranule(*context));
  const cu::AllocationProperties properties = PropertiesOn(*context);
  cu::MemoryHandle made = 0;
  CF_RETURN_IF_ERROR(context->Check(
      api.MemCreate(&made, static_cast<size_t>(rounded), &properties, 0), "cuMemCreate"));
  const OwnedHandle handle(api, made);
  int exported = -1;
  CF_RETURN_IF_ERROR(context->Check(api.MemExport(&exported, made, cu::kHandlePosixFd, 0),
                                    "cuMemExportToShareableHandle"));
  UniqueFd fd(exported);
  CF_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                      MapHandle(context, made, rounded, /*writable=*/true, /*shift=*/0));
  return SharedMemory(std::move(buffer), std::move(fd), UniqueFd());
}

Result<DeviceBuffer> MapCudaMemory(const CudaContextPtr& context, int fd, int64_t bytes,
                                   bool writable, int64_t shift) {
  CF_RETURN_IF_ERROR(context->MakeCurrent());
  if (bytes <= 0 || bytes % CudaGranule(*context) != 0) {
    return Status::Corruption("shared memory of no whole granules");
  }
  cu::MemoryHandle made = 0;
  // The driver takes the descriptor in place of a pointer.
  void* const shareable = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
  CF_RETURN_IF_ERROR(
      context->api().Check(context->api().MemImport(&made, shareable, cu::kHandlePosixFd),
                           "cuMemImportFromShareableHandle"));
  const OwnedHandle handle(context->api(), made);
  return MapHandle(context, made, bytes, writable, shift);
}

}  // namespace cudaforge
