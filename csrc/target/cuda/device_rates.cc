#include "target/cuda/device_rates.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace cudaforge {
namespace {

constexpr int kBlock = 256;
constexpr int kWarps = kBlock / 32;
constexpr int kWarmUps = 3;
constexpr int kSamples = 15;
constexpr double kBudgetMs = 200;  // for one rate
constexpr int64_t kLeastBuffer = int64_t{256} << 20;
constexpr int kCachedShare = 8;       // of the L2, for each buffer
constexpr int64_t kFmaLoops = 1024;   // 8 x 16 operations a thread each
constexpr int64_t kBusyLoops = 4096;  // of one block, about 256 cycles each
constexpr double kFmaFlops = 2.0 * 8 * 16;
constexpr int64_t kMmaLoops = 1024;  // of 4 x 8 instructions a warp, or as much; of 4
constexpr double kMmaFlops = 2.0 * 16 * 8 * 16 * 4 * 8;

class Rates {
 public:
  Rates(const CudaContextPtr& context, cu::Stream stream, CudaModule module)
      : context_(context), stream_(stream), module_(std::move(module)) {}
  Rates(const Rates&) = delete;
  Rates& operator=(const Rates&) = delete;
  ~Rates() {
    const cu::DriverApi& api = context_->api();
    if (!context_->MakeCurrent().ok()) return;
    for (const cu::DevicePtr buffer : buffers_) api.MemFree(buffer);
    if (start_ != nullptr) api.EventDestroy(start_);
    if (end_ != nullptr) api.EventDestroy(end_);
  }

  Status Init() {
    const cu::DriverApi& api = context_->api();
    CF_RETURN_IF_ERROR(
        context_->Check(api.EventCreate(&start_, cu::kEventDefault), "cuEventCreate"));
    CF_RETURN_IF_ERROR(context_->Check(api.EventCreate(&end_, cu::kEventDefault), "cuEventCreate"));
    CF_ASSIGN_OR_RETURN(sms_, context_->Attribute(cu::kMultiprocessors));
    CF_ASSIGN_OR_RETURN(const int threads, context_->Attribute(cu::kThreadsPerMultiprocessor));
    grid_ = sms_ * (threads / kBlock);  // exactly fills every multiprocessor
    return Status::Ok();
  }

  Result<double> BandwidthGbPerS() {
    CF_ASSIGN_OR_RETURN(const int l2, context_->Attribute(cu::kL2Bytes));
    size_t free = 0;
    size_t total = 0;
    CF_RETURN_IF_ERROR(context_->Check(context_->api().MemGetInfo(&free, &total), "cuMemGetInfo"));
    return CopyGbPerS(
        std::min(std::max(kLeastBuffer, int64_t{8} * l2), static_cast<int64_t>(free / 4)), 0);
  }

  Result<double> CachedGbPerS(double launch_us) {
    CF_ASSIGN_OR_RETURN(const int l2, context_->Attribute(cu::kL2Bytes));
    return CopyGbPerS(l2 / kCachedShare, launch_us);
  }

  Result<double> LaunchUs() {
    CF_ASSIGN_OR_RETURN(cu::DevicePtr buffer, Allocate(16));
    int64_t n = 0;
    void* params[] = {&buffer, &buffer, &n};
    const int grid = std::exchange(grid_, 1);
    const Result<double> ms = MedianMs("copy16", params);
    grid_ = grid;
    CF_RETURN_IF_ERROR(ms.status());
    return *ms * 1e3;
  }

  Result<double> FmaTflops() {
    CF_ASSIGN_OR_RETURN(cu::DevicePtr out, Allocate(int64_t{4} * grid_ * kBlock));
    int64_t loops = kFmaLoops;
    double scale = 0.999;
    double offset = 0.001;
    void* params[] = {&out, &loops, &scale, &offset};
    CF_ASSIGN_OR_RETURN(const double ms, MedianMs("fma32", params));
    return kFmaFlops * static_cast<double>(loops) * grid_ * kBlock / ms / 1e9;
  }

  Result<double> TensorTflops(const char* kernel) {
    CF_ASSIGN_OR_RETURN(cu::DevicePtr out, Allocate(int64_t{4} * grid_ * kBlock));
    int64_t loops = kMmaLoops;
    void* params[] = {&out, &loops};
    CF_ASSIGN_OR_RETURN(const double ms, MedianMs(kernel, params));
    return kMmaFlops * static_cast<double>(loops) * grid_ * kWarps / ms / 1e9;
  }

 private:
  // A copy between two buffers of `bytes`; subtracts `extra_us` from each run.
  Result<double> CopyGbPerS(int64_t bytes, double extra_us) {
    bytes = bytes / 4096 * 4096;
    CF_ASSIGN_OR_RETURN(cu::DevicePtr from, Allocate(bytes));
    CF_ASSIGN_OR_RETURN(cu::DevicePtr to, Allocate(bytes));
    CF_RETURN_IF_ERROR(context_->Check(
        context_->api().MemsetD32Async(from, 0x3f9df3b6u, static_cast<size_t>(bytes / 4), stream_),
        "cuMemsetD32Async"));
    int64_t n = bytes / 16;
    void* params[] = {&from, &to, &n};
    CF_ASSIGN_OR_RETURN(const double ms, MedianMs("copy16", params));
    const double us = ms * 1e3 - extra_us;
    if (!(us > 0)) return Status::Unavailable("a copy took no longer than a launch");
    return 2.0 * static_cast<double>(bytes) / us / 1e3;
  }

  Result<cu::DevicePtr> Allocate(int64_t bytes) {
    cu::DevicePtr data = 0;
    CF_RETURN_IF_ERROR(
        context_->Check(context_->api().MemAlloc(&data, static_cast<size_t>(bytes)), "cuMemAlloc"));
    buffers_.push_back(data);
    return data;
  }

  Status Launch(cu::Function kernel, int grid, void** params) {
    cu::LaunchConfig config;
    config.grid[0] = static_cast<unsigned>(grid);
    config.block[0] = kBlock;
    config.stream = stream_;
    return context_->Check(context_->api().LaunchKernelEx(&config, kernel, params, nullptr),
                           "cuLaunchKernelEx");
  }

  // Enqueues about a millisecond of work, so that the host gets ahead of the device.
  Status KeepBusy() {
    if (busy_ == nullptr) {
      CF_ASSIGN_OR_RETURN(busy_out_, Allocate(int64_t{4} * kBlock));
      CF_ASSIGN_OR_RETURN(busy_, module_.Kernel("fma32"));
    }
    int64_t loops = kBusyLoops;
    double scale = 0.999;
    double offset = 0.001;
    void* params[] = {&busy_out_, &loops, &scale, &offset};
    return Launch(busy_, 1, params);
  }

  Result<double> OnceMs(cu::Function kernel, void** params) {
    const cu::DriverApi& api = context_->api();
    CF_RETURN_IF_ERROR(KeepBusy());
    CF_RETURN_IF_ERROR(context_->Check(api.EventRecord(start_, stream_), "cuEventRecord"));
    CF_RETURN_IF_ERROR(Launch(kernel, grid_, params));
    CF_RETURN_IF_ERROR(context_->Check(api.EventRecord(end_, stream_), "cuEventRecord"));
    CF_RETURN_IF_ERROR(context_->Check(api.StreamSynchronize(stream_), "measuring the device"));
    float ms = 0;
    CF_RETURN_IF_ERROR(
        context_->Check(api.EventElapsedTime(&ms, start_, end_), "cuEventElapsedTime"));
    return double{ms};
  }

  Result<double> MedianMs(const char* name, void** params) {
    CF_ASSIGN_OR_RETURN(const cu::Function kernel, module_.Kernel(name));
    std::vector<double> samples;
    double spent = 0;
    for (int i = -kWarmUps; i < kSamples && (i < 3 || spent < kBudgetMs); ++i) {
      CF_ASSIGN_OR_RETURN(const double ms, OnceMs(kernel, params));
      spent += ms;
      if (i >= 0) samples.push_back(ms);
    }
    const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    if (!(*middle > 0)) return Status::Unavailable(std::string(name) + " took no time");
    return *middle;
  }

  const CudaContextPtr& context_;
  cu::Stream stream_;
  CudaModule module_;
  cu::Event start_ = nullptr;
  cu::Event end_ = nullptr;
  int sms_ = 0;
  int grid_ = 0;
  cu::Function busy_ = nullptr;  // of KeepBusy, and what it writes to
  cu::DevicePtr busy_out_ = 0;
  std::vector<cu::DevicePtr> buffers_;
};

}  // namespace

Result<Json> MeasureDeviceRates(const CudaContextPtr& context, cu::Stream stream,
                                const std::string& cubin) {
  CF_ASSIGN_OR_RETURN(CudaModule module, CudaModule::Load(context, cubin));
  Rates rates(context, stream, std::move(module));
  CF_RETURN_IF_ERROR(rates.Init());
  CF_ASSIGN_OR_RETURN(const int major, context->Attribute(cu::kCapabilityMajor));
  Json found = {{"note", ""}};
  const auto keep = [&](const char* name, const Result<double>& rate) -> Status {
    if (rate.ok()) {
      found[name] = *rate;
    } else if (context->poisoned()) {
      return rate.status();
    } else {
      const std::string note = found["note"];
      found["note"] = note + (note.empty() ? "" : "; ") + name + ": " + rate.status().message();
    }
    return Status::Ok();
  };
  CF_RETURN_IF_ERROR(keep("fp32_tflops", rates.FmaTflops()));
  if (major >= 8) {
    CF_RETURN_IF_ERROR(keep("bf16_tensor_tflops", rates.TensorTflops("mma_bf16")));
    CF_RETURN_IF_ERROR(keep("fp16_tensor_tflops", rates.TensorTflops("mma_fp16")));
  }
  CF_RETURN_IF_ERROR(keep("bandwidth_gb_s", rates.BandwidthGbPerS()));
  const Result<double> launch_us = rates.LaunchUs();
  CF_RETURN_IF_ERROR(keep("launch_us", launch_us));
  if (launch_us.ok()) {
    CF_RETURN_IF_ERROR(keep("cached_gb_s", rates.CachedGbPerS(*launch_us)));
  }
  return found;
}

}  // namespace cudaforge
