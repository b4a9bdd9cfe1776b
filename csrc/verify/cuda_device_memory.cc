// DeviceMemory on CUDA: see verify/device_memory.h.
#include <algorithm>
#include <utility>

#include "target/device_buffer.h"
#include "verify/device_memory.h"

namespace cudaforge {
namespace {

constexpr unsigned kFillThreads = 256;
constexpr int64_t kFillBlocksPerMultiprocessor = 8;
constexpr int64_t kLeastScratch = 4096;

cu::DevicePtr DeviceAddress(const void* data) { return reinterpret_cast<cu::DevicePtr>(data); }

class CudaDeviceMemory : public DeviceMemory {
 public:
  explicit CudaDeviceMemory(std::shared_ptr<OwnKernels> kernels) : kernels_(std::move(kernels)) {}

  Status Fill(void* data, int64_t bytes, FillPattern pattern, uint64_t seed, DType dtype) override {
    if (bytes == 0) return Status::Ok();
    cu::DevicePtr address = DeviceAddress(data);
    device::FillRule rule = RuleOf(pattern, dtype);
    void* params[] = {&address, &bytes, &rule, &seed};
    return kernels_->Launch("fill_bytes", Blocks(bytes / 16), kFillThreads, params);
  }

  Result<FillDamage> CheckFill(const void* data, int64_t bytes, FillPattern pattern, uint64_t seed,
                               DType dtype) override {
    if (bytes == 0) return FillDamage();
    uint64_t damage[2] = {0, ~uint64_t{0}};
    CF_ASSIGN_OR_RETURN(void* const scratch, Scratch(sizeof(damage)));
    CF_RETURN_IF_ERROR(CopyFromHost(scratch, damage, sizeof(damage)));
    cu::DevicePtr address = DeviceAddress(data);
    device::FillRule rule = RuleOf(pattern, dtype);
    cu::DevicePtr result = DeviceAddress(scratch);
    void* params[] = {&address, &bytes, &rule, &seed, &result};
    CF_RETURN_IF_ERROR(kernels_->Launch("check_fill", Blocks(bytes / 16), kFillThreads, params));
    CF_RETURN_IF_ERROR(CopyToHost(damage, scratch, sizeof(damage)));
    FillDamage found;
    found.changed = static_cast<int64_t>(damage[0]);
    if (found.changed > 0) found.first = static_cast<int64_t>(damage[1]);
    return found;
  }

  Status Spoil(void* data, int64_t bytes, uint64_t seed) override {
    if (bytes == 0) return Status::Ok();
    cu::DevicePtr address = DeviceAddress(data);
    void* params[] = {&address, &bytes, &seed};
    return kernels_->Launch("spoil_bytes", Blocks(bytes / 2048), kFillThreads, params);
  }

  Status Copy(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return Status::Ok();
    CF_RETURN_IF_ERROR(context().MakeCurrent());
    return context().Check(context().api().MemcpyDtoDAsync(DeviceAddress(to), DeviceAddress(from),
                                                           static_cast<size_t>(bytes), nullptr),
                           "cuMemcpyDtoDAsync");
  }
  // The next two synchronise, so that they copy the results of earlier work.
  Status CopyToHost(void* host, const void* data, int64_t bytes) override {
    if (bytes == 0) return Status::Ok();
    CF_RETURN_IF_ERROR(context().MakeCurrent());
    return context().Check(
        context().api().MemcpyDtoH(host, DeviceAddress(data), static_cast<size_t>(bytes)),
        "cuMemcpyDtoH");
  }
  Status CopyFromHost(void* data, const void* host, int64_t bytes) override {
    if (bytes == 0) return Status::Ok();
    CF_RETURN_IF_ERROR(context().MakeCurrent());
    return context().Check(
        context().api().MemcpyHtoD(DeviceAddress(data), host, static_cast<size_t>(bytes)),
        "cuMemcpyHtoD");
  }

  Status Synchronize() override { return kernels_->Synchronize(); }
  OwnKernels* kernels() override { return kernels_.get(); }

  Result<void*> Scratch(int64_t bytes) override {
    if (scratch_.bytes() >= bytes) return scratch_.data();
    bytes = std::max(bytes, kLeastScratch);
    CF_RETURN_IF_ERROR(context().MakeCurrent());
    scratch_ = DeviceBuffer();
    cu::DevicePtr data = 0;
    CF_RETURN_IF_ERROR(
        context().Check(context().api().MemAlloc(&data, static_cast<size_t>(bytes)), "cuMemAlloc"));
    scratch_ = DeviceBuffer(reinterpret_cast<void*>(data), bytes,
                            [context = kernels_->context()](void* freed) {
                              const CurrentContextKeeper keeper(context->api());
                              if (!context->MakeCurrent().ok()) return;
                              context->api().MemFree(DeviceAddress(freed));
                            });
    return scratch_.data();
  }

 private:
  const CudaContext& context() const { return *kernels_->context(); }
  unsigned Blocks(int64_t items) const {
    const int64_t wanted = items / kFillThreads + 1;
    return static_cast<unsigned>(
        std::min(wanted, kFillBlocksPerMultiprocessor * kernels_->multiprocessors()));
  }

  const std::shared_ptr<OwnKernels> kernels_;
  DeviceBuffer scratch_;
};

}  // namespace

std::unique_ptr<DeviceMemory> MakeCudaMemory(std::shared_ptr<OwnKernels> kernels) {
  return std::make_unique<CudaDeviceMemory>(std::move(kernels));
}

}  // namespace cudaforge
