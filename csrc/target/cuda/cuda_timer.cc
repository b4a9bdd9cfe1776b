#include "target/cuda/cuda_timer.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace cudaforge {
namespace {

// Longer than a host needs to queue a region's launches. Bounds the wait if the work synchronises.
constexpr int64_t kHoldNs = 2'000'000;

}  // namespace

// One thread spins until the word at `go` is not zero or `limit_ns` have passed.
const char* const kHoldPtx = R"(.version 6.3
.target sm_75
.address_size 64
.visible .entry cudaforge_hold(.param .u64 go, .param .u64 limit_ns)
{
  .reg .pred %p<3>;
  .reg .u32 %r<2>;
  .reg .u64 %t<6>;
  ld.param.u64 %t1, [go];
  ld.param.u64 %t2, [limit_ns];
  cvta.to.global.u64 %t1, %t1;
  mov.u64 %t3, %globaltimer;
$again:
  ld.volatile.global.u32 %r1, [%t1];
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra $done;
  mov.u64 %t4, %globaltimer;
  sub.u64 %t5, %t4, %t3;
  setp.lt.u64 %p2, %t5, %t2;
  @%p2 bra $again;
$done:
  ret;
}
)";

Result<std::unique_ptr<CudaTimer>> CudaTimer::Create(CudaContextPtr context, cu::Stream stream) {
  std::unique_ptr<CudaTimer> timer(new CudaTimer(std::move(context), stream));
  CF_RETURN_IF_ERROR(timer->Init());
  return timer;
}

Status CudaTimer::Init() {
  const cu::DriverApi& api = context_->api();
  CF_RETURN_IF_ERROR(context_->MakeCurrent());
  CF_RETURN_IF_ERROR(context_->Check(api.EventCreate(&start_, cu::kEventDefault), "cuEventCreate"));
  CF_RETURN_IF_ERROR(context_->Check(api.EventCreate(&end_, cu::kEventDefault), "cuEventCreate"));
  CF_ASSIGN_OR_RETURN(const int l2, context_->Attribute(cu::kL2Bytes));
  flush_words_ = size_t{2} * static_cast<size_t>(l2) / sizeof(unsigned) + 1;
  CF_RETURN_IF_ERROR(
      context_->Check(api.MemAlloc(&flush_, flush_words_ * sizeof(unsigned)), "cuMemAlloc"));
  void* host = nullptr;
  CF_RETURN_IF_ERROR(context_->Check(
      api.MemHostAlloc(&host, sizeof(unsigned), cu::kHostAllocDeviceMap), "cuMemHostAlloc"));
  go_ = static_cast<unsigned*>(host);
  CF_RETURN_IF_ERROR(context_->Check(api.MemHostGetDevicePointer(&go_device_, host, 0),
                                     "cuMemHostGetDevicePointer"));
  CF_ASSIGN_OR_RETURN(CudaModule module, CudaModule::Load(context_, kHoldPtx));
  module_ = std::make_unique<CudaModule>(std::move(module));
  CF_ASSIGN_OR_RETURN(hold_, module_->Kernel("cudaforge_hold"));
  return Status::Ok();
}

CudaTimer::~CudaTimer() {
  const cu::DriverApi& api = context_->api();
  if (!context_->MakeCurrent().ok()) return;
  if (start_ != nullptr) api.EventDestroy(start_);
  if (end_ != nullptr) api.EventDestroy(end_);
  if (flush_ != 0) api.MemFree(flush_);
  if (go_ != nullptr) api.MemFreeHost(go_);
}

Status CudaTimer::Hold() {
  std::atomic_ref<unsigned>(*go_).store(0, std::memory_order_release);
  cu::LaunchConfig config;
  config.stream = stream_;
  int64_t limit = kHoldNs;
  void* params[] = {&go_device_, &limit};
  return context_->Check(context_->api().LaunchKernelEx(&config, hold_, params, nullptr),
                         "cudaforge_hold");
}

Status CudaTimer::Release() {
  std::atomic_ref<unsigned>(*go_).store(1, std::memory_order_release);
  return context_->Check(context_->api().StreamSynchronize(stream_), "running the timed work");
}

Status CudaTimer::EvictL2() {
  const cu::DriverApi& api = context_->api();
  CF_RETURN_IF_ERROR(context_->MakeCurrent());
  // The writes would not evict lines that an access policy made persistent.
  if (api.ResetPersistingL2 != nullptr) api.ResetPersistingL2();
  return context_->Check(api.MemsetD32Async(flush_, 0, flush_words_, stream_), "cuMemsetD32Async");
}

// Copies into the eviction buffer, which leaves the source in the L2.
Status CudaTimer::Warm(const WarmBytes& warm) {
  const size_t room = flush_words_ * sizeof(unsigned);
  auto from = reinterpret_cast<cu::DevicePtr>(warm.data);
  for (auto left = static_cast<size_t>(std::max(warm.bytes, int64_t{0})); left > 0;) {
    const size_t part = std::min(left, room);
    CF_RETURN_IF_ERROR(context_->Check(context_->api().MemcpyDtoDAsync(flush_, from, part, stream_),
                                       "cuMemcpyDtoDAsync"));
    from += part;
    left -= part;
  }
  return Status::Ok();
}

Result<double> CudaTimer::Time(const std::function<Status()>& enqueue,
                               std::span<const WarmBytes> warm) {
  const cu::DriverApi& api = context_->api();
  CF_RETURN_IF_ERROR(EvictL2());
  for (const WarmBytes& bytes : warm) CF_RETURN_IF_ERROR(Warm(bytes));
  CF_RETURN_IF_ERROR(Hold());
  Status status = context_->Check(api.EventRecord(start_, stream_), "cuEventRecord");
  if (status.ok()) status = enqueue();
  if (status.ok()) status = context_->Check(api.EventRecord(end_, stream_), "cuEventRecord");
  const Status released = Release();
  CF_RETURN_IF_ERROR(status);
  CF_RETURN_IF_ERROR(released);
  float ms = 0;
  CF_RETURN_IF_ERROR(
      context_->Check(api.EventElapsedTime(&ms, start_, end_), "cuEventElapsedTime"));
  return double{ms} * 1e6;
}

}  // namespace cudaforge
