#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "target/cuda/cublaslt_executable.h"
#include "target/cuda/cublaslt_tuner.h"
#include "target/cuda/cuda_compiler.h"
#include "target/cuda/cuda_context.h"
#include "target/cuda/cuda_executable.h"
#include "target/cuda/cuda_memory.h"
#include "target/cuda/cuda_timer.h"
#include "target/cuda/device_rates.h"
#include "target/cuda/on_chip_scrub.h"
#include "target/cuda/range_profiler.h"
#include "target/target.h"

namespace cudaforge {
namespace {

constexpr int kRatesTimeoutMs = 60'000;

cu::DevicePtr Address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

class CudaTarget : public Target {
 public:
  CudaTarget(CudaContextPtr context, DeviceArch arch, const CudaTargetOptions& options)
      : context_(std::move(context)),
        arch_(std::move(arch)),
        search_paths_(options.search_paths),
        compiler_(arch_.target.substr(std::string_view("cuda:").size()), search_paths_),
        tuner_(context_, search_paths_),
        counters_(options.counters) {}

  CudaTarget(const CudaTarget&) = delete;
  CudaTarget& operator=(const CudaTarget&) = delete;
  ~CudaTarget() override {
    timer_.reset();
    profiler_.reset();
    if (stream_ != nullptr && context_->MakeCurrent().ok()) context_->api().StreamDestroy(stream_);
  }

  // Ordered with the legacy default stream, so that work queued there is timed too.
  Status MakeStream() {
    return context_->Check(context_->api().StreamCreate(&stream_, cu::kStreamDefault),
                           "cuStreamCreate");
  }

  const DeviceArch& arch() const override { return arch_; }

  CompileResult Compile(const KernelSource& source, int timeout_ms) override {
    if (source.language == Language::kLibrary) return ChooseAlgorithm(source.code);
    return compiler_.Compile(source, timeout_ms);
  }

  Result<std::unique_ptr<Executable>> Load(const std::string& binary, const Candidate& candidate,
                                           const OpSignature& signature) override {
    if (candidate.source.language == Language::kLibrary)
      return LoadCublasLt(context_, binary, candidate, signature, search_paths_);
    return LoadCuda(context_, binary, candidate, signature);
  }

  Result<DeviceBuffer> Allocate(int64_t bytes) override {
    CF_CHECK(bytes >= 0) << "a buffer of " << bytes << " bytes";
    CF_RETURN_IF_ERROR(context_->MakeCurrent());
    cu::DevicePtr data = 0;
    CF_RETURN_IF_ERROR(context_->Check(
        context_->api().MemAlloc(&data, static_cast<size_t>(std::max(bytes, int64_t{1}))),
        "cuMemAlloc"));
    return DeviceBuffer(reinterpret_cast<void*>(data), bytes, [context = context_](void* pointer) {
      if (context->MakeCurrent().ok()) context->api().MemFree(Address(pointer));
    });
  }

  int64_t granule() const override { return CudaGranule(*context_); }
  Result<SharedMemory> Share(int64_t bytes) override { return ShareCudaMemory(context_, bytes); }
  Result<DeviceBuffer> Map(int fd, int64_t bytes, bool writable, int64_t shift) override {
    return MapCudaMemory(context_, fd, bytes, writable, shift);
  }
  Status Scrub(uint64_t seed) override {
    if (!scrub_.has_value()) {
      const CompileResult compiled = Compile({Language::kCuda, kScrubSource}, kRatesTimeoutMs);
      if (!compiled.fault.ok()) return compiled.fault;
      if (!compiled.ok) return Status::Internal("the scrubbing kernels: " + compiled.log);
      CF_ASSIGN_OR_RETURN(OnChipScrub scrub, OnChipScrub::Load(context_, compiled.binary));
      scrub_.emplace(std::move(scrub));
    }
    return scrub_->Run(stream_, seed);
  }
  Result<int64_t> FreeBytes() override {
    CF_RETURN_IF_ERROR(context_->MakeCurrent());
    size_t free = 0, total = 0;
    CF_RETURN_IF_ERROR(context_->Check(context_->api().MemGetInfo(&free, &total), "cuMemGetInfo"));
    return static_cast<int64_t>(free);
  }

  Status CopyIn(void* device, const void* host, int64_t bytes) override {
    if (bytes == 0) return Status::Ok();
    CF_RETURN_IF_ERROR(context_->MakeCurrent());
    // Pageable memory may be staged. Synchronising makes the bytes visible to every stream.
    CF_RETURN_IF_ERROR(context_->Check(
        context_->api().MemcpyHtoD(Address(device), host, static_cast<size_t>(bytes)),
        "cuMemcpyHtoD"));
    return Synchronize();
  }

  Status CopyOut(void* host, const void* device, int64_t bytes) override {
    if (bytes == 0) return Status::Ok();
    CF_RETURN_IF_ERROR(context_->MakeCurrent());
    CF_RETURN_IF_ERROR(Synchronize());
    return context_->Check(
        context_->api().MemcpyDtoH(host, Address(device), static_cast<size_t>(bytes)),
        "cuMemcpyDtoH");
  }

  Status Synchronize() override {
    CF_RETURN_IF_ERROR(context_->MakeCurrent());
    return context_->Check(context_->api().ContextSynchronize(), "running the kernels");
  }

  LaunchContext launch_context() override { return {stream_, nullptr}; }

  Result<double> TimeWarm(const std::function<Status()>& enqueue,
                          std::span<const WarmBytes> warm) override {
    CF_ASSIGN_OR_RETURN(CudaTimer * timer, Timer());
    return timer->Time(enqueue, warm);
  }

  Result<Json> Profile(const Executable& executable, const std::function<Status()>& enqueue,
                       int tier) override {
    CF_ASSIGN_OR_RETURN(Json kernels, executable.LaunchFacts());
    Json profile = {{"tier", 0},
                    {"passes", 0},
                    {"note", ""},
                    {"kernels", std::move(kernels)},
                    {"metrics", Json::object()}};
    if (tier <= 0) return profile;
    if (!counters_) {
      profile["note"] = "hardware counters are read in the worker process only";
      return profile;
    }
    if (!profiler_.has_value()) profiler_.emplace(RangeProfiler::Create(context_, search_paths_));
    if (!profiler_->ok()) {
      profile["note"] = profiler_->status().message();
      return profile;
    }
    CF_ASSIGN_OR_RETURN(CudaTimer * timer, Timer());
    // Once without counters, so that failing work fails here.
    CF_RETURN_IF_ERROR(enqueue());
    CF_RETURN_IF_ERROR(Synchronize());
    const auto prepare = [&] {
      CF_RETURN_IF_ERROR(timer->EvictL2());
      return Synchronize();
    };
    CF_ASSIGN_OR_RETURN(const RangeProfiler::Counters counters,
                        (*profiler_->value()).Collect(tier, prepare, enqueue));
    profile["note"] = counters.note;
    profile["passes"] = counters.passes;
    profile["metrics"] = counters.metrics;
    if (!counters.metrics.empty()) profile["tier"] = std::min(tier, kMaxProfileTier);
    return profile;
  }

  Result<Json> Facts() override {
    if (facts_.is_null()) {
      CF_ASSIGN_OR_RETURN(facts_, MeasureFacts());
    }
    return facts_;
  }

  bool poisoned() const override { return context_->poisoned(); }

 private:
  Result<CudaTimer*> Timer() {
    if (timer_ == nullptr) {
      CF_ASSIGN_OR_RETURN(timer_, CudaTimer::Create(context_, stream_));
    }
    return timer_.get();
  }

  CompileResult ChooseAlgorithm(const std::string& product) {
    if (const Status current = context_->MakeCurrent(); !current.ok())
      return CompileResult::Fault(current);
    const Result<CudaTimer*> timer = Timer();
    if (!timer.ok()) return CompileResult::Fault(timer.status());
    return tuner_.Compile(product, **timer, stream_);
  }

  Result<Json> MeasureFacts() {
    static constexpr std::pair<const char*, const char*> kNames[] = {
        {"name", "name"},
        {"sms", "multiprocessors"},
        {"l2_bytes", "l2_bytes"},
        {"memory_bytes", "memory_bytes"},
        {"threads_per_sm", "max_threads_per_multiprocessor"},
        {"registers_per_sm", "registers_per_multiprocessor"},
        {"shared_bytes_per_sm", "shared_bytes_per_multiprocessor"},
        {"shared_bytes_per_block_optin", "shared_bytes_per_block_optin"},
        {"driver", "driver_cuda_version"}};
    Json facts = {{"arch", arch_.target}};
    const Json known = arch_.Facts();
    for (const auto& [name, fact] : kNames) facts[name] = known.value(fact, Json());
    facts["clock_mhz"] = static_cast<double>(arch_.clock_khz.value_or(0)) / 1000;
    CF_RETURN_IF_ERROR(context_->MakeCurrent());
    const CompileResult compiled = Compile({Language::kCuda, kRatesSource}, kRatesTimeoutMs);
    if (!compiled.ok) {
      facts["note"] = "nothing was measured: " +
                      (compiled.fault.ok() ? compiled.log : compiled.fault.message());
      return facts;
    }
    CF_ASSIGN_OR_RETURN(const Json rates, MeasureDeviceRates(context_, stream_, compiled.binary));
    facts.update(rates);
    return facts;
  }

  CudaContextPtr context_;
  DeviceArch arch_;
  std::vector<std::string> search_paths_;
  CudaCompiler compiler_;
  CublasLtTuner tuner_;
  bool counters_;
  cu::Stream stream_ = nullptr;  // nullptr: the legacy default stream
  std::unique_ptr<CudaTimer> timer_;
  std::optional<OnChipScrub> scrub_;                                // loaded by the first Scrub
  std::optional<Result<std::unique_ptr<RangeProfiler>>> profiler_;  // opened by the first Profile
  Json facts_;                                                      // null before the first Facts
};

}  // namespace

Result<std::unique_ptr<Target>> MakeCudaTarget(int device_index, const CudaTargetOptions& options) {
  CF_ASSIGN_OR_RETURN(const cu::DriverApi* api, cu::DriverApi::Get());
  const CurrentContextKeeper keeper(*api);
  CF_ASSIGN_OR_RETURN(CudaContextPtr context, CudaContext::Retain(device_index));
  CF_ASSIGN_OR_RETURN(DeviceArch arch, context->Describe());
  auto target = std::make_unique<CudaTarget>(std::move(context), std::move(arch), options);
  if (options.own_stream) CF_RETURN_IF_ERROR(target->MakeStream());
  return std::unique_ptr<Target>(std::move(target));
}

}  // namespace cudaforge
