
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/integers.h"
#include "base/random.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "target/cpu/cpu_compiler.h"
#include "target/cpu/cpu_executable.h"
#include "target/cpu/cpu_info.h"
#include "target/cpu/cpu_memory.h"
#include "target/cpu/cpu_rates.h"
#include "target/cpu/perf_counters.h"
#include "target/cpu/thread_pool.h"
#include "target/target.h"

namespace cudaforge {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kMaxEviction = int64_t{64} << 20;

// The first line of the host compiler's --version; empty if that fails.
std::string CompilerVersion(const std::string& wanted) {
  const Result<std::string> cxx = FindHostCompiler(wanted);
  if (!cxx.ok()) return "";
  const auto run = RunProcess({*cxx, "--version"}, {.timeout_ms = 5000});
  if (!run.ok() || run->term_signal != 0 || run->exit_code != 0) return "";
  return Printable(run->output.substr(0, run->output.find('\n')), 200);
}

class CpuTarget : public Target {
 public:
  explicit CpuTarget(const CpuTargetOptions& options) : cxx_(options.cxx), arch_(DescribeCpu()) {
    const Result<std::string> cxx = FindHostCompiler(cxx_);
    if (cxx.ok()) arch_.compiler = *cxx;
    arch_.threads = ThreadPool::GlobalThreads(options.threads);
  }

  const DeviceArch& arch() const override { return arch_; }

  CompileResult Compile(const KernelSource& source, int timeout_ms) override {
    if (source.language != Language::kCpu) {
      return CompileResult::Failure("a cpu target compiles language \"cpu\" only");
    }
    return CompileCpu(source.code, cxx_, timeout_ms);
  }

  Result<std::unique_ptr<Executable>> Load(const std::string& binary, const Candidate& candidate,
                                           const OpSignature& signature) override {
    return LoadCpu(binary, candidate, signature);
  }

  Result<DeviceBuffer> Allocate(int64_t bytes) override {
    CF_CHECK(bytes >= 0) << "a buffer of " << bytes << " bytes";
    const int64_t rounded = RoundUp(std::max(bytes, int64_t{1}), kAlignment);
    void* data = std::aligned_alloc(kAlignment, static_cast<size_t>(rounded));
    if (data == nullptr)
      return Status::NoMemory("no memory for " + std::to_string(bytes) + " bytes");
    return DeviceBuffer(data, bytes, [](void* p) { std::free(p); });
  }

  int64_t granule() const override { return PageBytes(); }
  Result<SharedMemory> Share(int64_t bytes) override { return ShareHostMemory(bytes); }
  Result<DeviceBuffer> Map(int fd, int64_t bytes, bool writable, int64_t shift) override {
    return MapHostMemory(fd, bytes, writable, shift);
  }
  Result<int64_t> FreeBytes() override { return FreeMemoryBytes(); }

  Status CopyIn(void* device, const void* host, int64_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, static_cast<size_t>(bytes));
    return Status::Ok();
  }

  Status CopyOut(void* host, const void* device, int64_t bytes) override {
    return CopyIn(host, device, bytes);
  }

  Status Synchronize() override { return Status::Ok(); }

  LaunchContext launch_context() override { return {nullptr, PoolParallelFor}; }

  Result<double> TimeWarm(const std::function<Status()>& enqueue,
                          std::span<const WarmBytes> warm) override {
    EvictCaches();
    for (const WarmBytes& bytes : warm) ReadLines(bytes);
    // The clock's start is stored masked, because a timed kernel may search for it.
    const uint64_t now = NowNs();
    mask_ = SplitMix(mask_ ^ now ^ reinterpret_cast<uintptr_t>(this)).Next();
    masked_start_ = NowNs() ^ mask_;
    CF_RETURN_IF_ERROR(enqueue());
    const uint64_t end = NowNs();
    return static_cast<double>(static_cast<int64_t>(end - (masked_start_ ^ mask_)));
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
    const auto prepare = [this] {
      EvictCaches();
      return Status::Ok();
    };
    CF_ASSIGN_OR_RETURN(const PerfCounters counters, CountPerf(prepare, enqueue));
    profile["note"] = counters.note;
    profile["metrics"] = counters.metrics;
    profile["passes"] = counters.metrics.size();
    profile["tier"] = counters.metrics.empty() ? 0 : 1;
    return profile;
  }

  Result<Json> Facts() override {
    if (!facts_.is_null()) return facts_;
    Json facts = MeasureCpuRates(cxx_);
    facts["arch"] = arch_.target;
    const Json known = arch_.Facts();
    for (const char* name : {"name", "cores", "threads", "l1d_bytes", "l2_bytes", "l3_bytes"}) {
      facts[name] = known.value(name, Json());
    }
    if (std::string words = CompilerVersion(cxx_); !words.empty()) facts["compiler"] = words;
    facts_ = std::move(facts);
    return facts_;
  }

 private:
  static uint64_t NowNs() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
  }

  // Reads into the caches of the threads that will use the data, assuming equal shares.
  static void ReadLines(const WarmBytes& warm) {
    if (warm.bytes <= 0) return;
    ThreadPool::Global().Run(
        warm.bytes, 1,
        [](void* context, int64_t begin, int64_t end) {
          const auto* bytes = static_cast<const volatile unsigned char*>(context);
          for (int64_t i = begin; i < end; i += 64) static_cast<void>(bytes[i]);
        },
        const_cast<void*>(warm.data));
  }

  // Every thread writes its part, to evict each core's own caches too.
  void EvictCaches() {
    if (eviction_.empty()) {
      eviction_.resize(static_cast<size_t>(std::min(2 * LastLevelCacheBytes(), kMaxEviction)));
    }
    ThreadPool::Global().Run(
        static_cast<int64_t>(eviction_.size()), 1,
        [](void* context, int64_t begin, int64_t end) {
          auto* bytes = static_cast<volatile unsigned char*>(context);
          for (int64_t i = begin; i < end; i += 64)
            bytes[i] = static_cast<unsigned char>(bytes[i] + 1);
        },
        eviction_.data());
  }

  std::string cxx_;
  DeviceArch arch_;
  std::vector<unsigned char> eviction_;
  Json facts_;  // null before the first Facts
  volatile uint64_t mask_ = 0, masked_start_ = 0;
};

}  // namespace

Result<std::unique_ptr<Target>> MakeCpuTarget(const CpuTargetOptions& options) {
  return std::unique_ptr<Target>(std::make_unique<CpuTarget>(options));
}

}  // namespace cudaforge
