// Target: the interface to one kind of device. Compiles, loads, launches and times candidates.
// Independent of ATen and torch. Implementations: target/cuda, target/cpu.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "kernel/candidate.h"
#include "signature/device_arch.h"
#include "target/device_buffer.h"
#include "target/shared_memory.h"

namespace cudaforge {

// A failed compilation is a value with its log.
struct CompileResult {
  static constexpr size_t kMaxLog = 64u << 10;

  bool ok = false;
  std::string log;                  // the compiler's output, cut at kMaxLog
  std::string binary;               // cubin or shared object, if ok
  Json resources = Json::object();  // cuda, by kernel: see ParsePtxasLog
  Status fault;  // not ok: this machine, not the source, is the reason for the failure

  // For a machine without a compiler, disk space or memory.
  static CompileResult Fault(const Status& status) {
    CompileResult result = Failure(status.message());
    result.fault = status;
    return result;
  }
  static CompileResult Failure(std::string log) {
    CompileResult result;
    if (log.size() > kMaxLog) {
      log.resize(kMaxLog);
      log += "\n[cut]";
    }
    result.log = std::move(log);
    return result;
  }
};

// Runs body(begin, end) over disjoint parts of [0, n), possibly in several threads. Returns when
// all are done.
using RangeFn = void (*)(void* context, int64_t begin, int64_t end);
using ParallelFor = void (*)(int64_t n, int64_t grain, RangeFn body, void* context);

struct LaunchContext {
  void* stream = nullptr;              // CUstream (cuda); its context is current
  ParallelFor parallel_for = nullptr;  // cpu
};

inline constexpr int kMaxProfileTier = 4;

// A launch of an Executable, which must outlive it, on fixed buffers. A CPU kernel reads the
// buffers' addresses from read-only pages.
class BoundLaunch {
 public:
  virtual ~BoundLaunch() = default;
  // As Executable::PrepareOperands and Executable::Launch.
  virtual Status Prepare(const LaunchContext& context) const = 0;
  virtual Status Run(const LaunchContext& context) const = 0;
};

// A loaded candidate, ready to launch: its plan is evaluated for one signature.
class Executable {
 public:
  virtual ~Executable() = default;
  // Bytes of each scratch buffer that the caller provides (256-byte aligned). The last
  // prepared_count() are the prepared buffers.
  std::span<const int64_t> scratch_bytes() const { return scratch_bytes_; }
  size_t prepared_count() const { return prepared_count_; }
  // Enqueues what fills the prepared buffers out of the frozen inputs; the other inputs may be
  // null. Also zeroes scratch buffers. Required once before Launch, and after each change of a
  // frozen input.
  // Else as Launch.
  virtual Status PrepareOperands(std::span<void* const> /*inputs*/,
                                 std::span<void* const> /*scratch*/,
                                 const LaunchContext& /*context*/) const {
    return Status::Ok();
  }
  // Enqueues the zeroing of scratch buffers, then all launches. Pointers are device pointers (cuda)
  // or host pointers (cpu). Does not allocate, lock or synchronise. Thread-safe. After an error the
  // outputs are undefined. kUnsupported: a cpu kernel changed the floating-point control words of
  // its thread, which are restored.
  virtual Status Launch(std::span<void* const> inputs, std::span<void* const> outputs,
                        std::span<void* const> scratch, const LaunchContext& context) const = 0;
  // The same for many runs on one set of buffers.
  virtual Result<std::unique_ptr<BoundLaunch>> Bind(std::span<void* const> inputs,
                                                    std::span<void* const> outputs,
                                                    std::span<void* const> scratch) const;
  // Returns static facts of each launch, in order, from the loaded kernel and the device. Sizes in
  // bytes. docs/messages.md lists them.
  virtual Result<Json> LaunchFacts() const { return Json(Json::array()); }

 protected:
  std::vector<int64_t> scratch_bytes_;
  size_t prepared_count_ = 0;
  std::vector<size_t> zeroed_;  // scratch buffers
};

// Device memory of this process that a timing reads into the caches.
struct WarmBytes {
  const void* data = nullptr;
  int64_t bytes = 0;
};

class Compiler {
 public:
  virtual ~Compiler() = default;
  // Compiles for one architecture. `timeout_ms` applies if the compiler is a process.
  virtual CompileResult Compile(const KernelSource& source, int timeout_ms) = 0;
};

// Compiles for arch().target.
class Target : public Compiler {
 public:
  virtual const DeviceArch& arch() const = 0;
  // Loads a binary and prepares the plan for `signature`. Does not change the thread's current
  // device. REQUIRES: candidate.Validate(signature).ok().
  virtual Result<std::unique_ptr<Executable>> Load(const std::string& binary,
                                                   const Candidate& candidate,
                                                   const OpSignature& signature) = 0;

  // All further calls make the device current. Each may report an earlier asynchronous error of the
  // device. The process must not be used after that error.
  //
  // Memory of this process only, 256-byte aligned. For tests, as are CopyIn and CopyOut.
  virtual Result<DeviceBuffer> Allocate(int64_t bytes) = 0;
  // The granule of shared memory, in bytes.
  virtual int64_t granule() const = 0;
  // Allocates at least `bytes` bytes, readable and writable here. kNoMemory.
  virtual Result<SharedMemory> Share(int64_t bytes) = 0;
  // Maps the memory of a descriptor from another process (SharedMemory::Export), which may be
  // closed afterwards. `bytes`: SharedMemory::bytes(). A second call maps the same memory at
  // another address. `shift`: see kMapShifts. kNoMemory; kCorruption (cuda: kInternal): `fd` is no
  // descriptor of exported memory.
  virtual Result<DeviceBuffer> Map(int fd, int64_t bytes, bool writable, int64_t shift) = 0;
  // Overwrites the state that a kernel may leave outside of buffers, before the next launch
  // (cuda/on_chip_scrub.h). `seed` determines the values; its last two bits their kind. Does
  // nothing on the CPU.
  virtual Status Scrub(uint64_t /*seed*/) { return Status::Ok(); }
  // Bytes that this process could allocate. cuda: free bytes by the driver. CPU: what the system
  // and the memory cgroups have left, including page cache.
  virtual Result<int64_t> FreeBytes() = 0;
  virtual Status CopyIn(void* device, const void* host, int64_t bytes) = 0;
  virtual Status CopyOut(void* host, const void* device, int64_t bytes) = 0;
  virtual Status Synchronize() = 0;
  // The context for the worker's launches (its own stream or threads).
  virtual LaunchContext launch_context() = 0;
  // Nanoseconds of device time of one call of `enqueue` with cold caches, which it evicts first.
  Result<double> TimeOnce(const std::function<Status()>& enqueue) { return TimeWarm(enqueue, {}); }
  // As TimeOnce, but the bytes of `warm` are read into the caches after the eviction.
  virtual Result<double> TimeWarm(const std::function<Status()>& enqueue,
                                  std::span<const WarmBytes> warm) = 0;
  // Returns hardware counters of one call of `enqueue`, which launches `executable`, with cold
  // caches as in TimeOnce; runs it several times. docs/messages.md describes the fields. "tier":
  // the tier that was possible, up to `tier` (0 to kMaxProfileTier); 0 has no metrics and runs
  // nothing. Names of metrics: TierMetrics (cuda/metric_schedule.h), CountPerf
  // (cpu/perf_counters.h; tier 1). Errors are those of the work or the device.
  virtual Result<Json> Profile(const Executable& executable, const std::function<Status()>& enqueue,
                               int tier) = 0;
  // Returns properties and measured rates of the device; docs/messages.md lists them. The first
  // call measures, in less than two seconds, with kernels of this project. A rate that could not be
  // measured is missing, and "note" says why.
  virtual Result<Json> Facts() = 0;
  // True after an unrecoverable device error: the process must not be used any more.
  virtual bool poisoned() const { return false; }
};

struct CpuTargetOptions {
  std::string cxx;  // host compiler; empty: g++, else c++, else clang++
  // For the pool behind launch_context(); 0: OMP_NUM_THREADS, else one per physical core of this
  // process.
  int threads = 0;
};

struct CudaTargetOptions {
  // Folders for libnvrtc, libnvJitLink and the CUDA headers, searched first: a toolkit's root or
  // PyPI's site-packages/nvidia/cu13.
  std::vector<std::string> search_paths;
  // false: launch_context() and TimeOnce use the legacy default stream, which is also PyTorch's
  // default.
  bool own_stream = true;
  // true: Profile may open CUPTI. Only for a process without another profiler: the worker, never
  // one with PyTorch.
  bool counters = false;
};

// Returns the target of this machine's device `index`. kUnavailable says what is missing and what
// to do. A missing compiler is no error here, because stored binaries load without one: Compile
// returns a fault. Does not change the thread's current device.
Result<std::unique_ptr<Target>> MakeCpuTarget(const CpuTargetOptions& options = {});
Result<std::unique_ptr<Target>> MakeCudaTarget(int device_index,
                                               const CudaTargetOptions& options = {});

}  // namespace cudaforge
