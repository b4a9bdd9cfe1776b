// Target: one kind of device behind one interface. A Target compiles, loads, launches and times
// candidates; it knows nothing of ATen. Implementations: target/cuda, target/cpu. Torch-free.
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

// A compile failure is a value that carries its log.
struct CompileResult {
  static constexpr size_t kMaxLog = 64u << 10;

  bool ok = false;
  std::string log;                  // the compiler's own words, cut at kMaxLog
  std::string binary;               // cubin or shared object, when ok
  Json resources = Json::object();  // cuda, by kernel: see ParsePtxasLog
  Status fault;  // not ok where this machine, and not the source, is why nothing was compiled

  // Of a machine without a compiler, without space or memory for it.
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

// Runs body(begin, end) over disjoint parts of [0, n), possibly in several threads; returns when
// all are done.
using RangeFn = void (*)(void* context, int64_t begin, int64_t end);
using ParallelFor = void (*)(int64_t n, int64_t grain, RangeFn body, void* context);

struct LaunchContext {
  void* stream = nullptr;              // CUstream (cuda); current context already set
  ParallelFor parallel_for = nullptr;  // cpu
};

inline constexpr int kMaxProfileTier = 4;

// A launch of an Executable, which must outlive it, on buffers that are fixed. On the CPU the
// kernel reads the buffers' addresses from pages that it cannot write to.
class BoundLaunch {
 public:
  virtual ~BoundLaunch() = default;
  // As Executable::Launch.
  virtual Status Run(const LaunchContext& context) const = 0;
};

// A loaded candidate, ready to launch: plan evaluated for one signature, no text left.
class Executable {
 public:
  virtual ~Executable() = default;
  // Bytes of each scratch buffer the caller must bring (256-byte aligned).
  std::span<const int64_t> scratch_bytes() const { return scratch_bytes_; }
  // Enqueues what zeroes scratch buffers, then all launches. Pointers are device pointers (cuda) or
  // host pointers (cpu). No allocation, no lock, no synchronisation. Thread-safe. On error nothing
  // can be said of the outputs. kUnsupported: a cpu kernel changed the floating-point control words
  // of a thread that it ran on; they are restored.
  virtual Status Launch(std::span<void* const> inputs, std::span<void* const> outputs,
                        std::span<void* const> scratch, const LaunchContext& context) const = 0;
  // The same for many runs on one set of buffers.
  virtual Result<std::unique_ptr<BoundLaunch>> Bind(std::span<void* const> inputs,
                                                    std::span<void* const> outputs,
                                                    std::span<void* const> scratch) const;
  // One object a launch, in their order: what is known of it before it runs. Read from the loaded
  // kernel and the device; sizes in bytes.
  //   cuda: {"kernel","grid":[x,y,z],"block":[x,y,z],"registers" (a thread),"local_bytes" (a
  //          thread: stack and spills),"static_shared_bytes","dynamic_shared_bytes",
  //          "blocks_per_sm" (as the driver counts),"occupancy" (share of the warps that a
  //          multiprocessor can hold, 0 to 1),"limits" (blocks a multiprocessor by each resource:
  //          {"warps","blocks","registers","shared"}),"limited_by" (names in "limits"),"waves"
  //          (blocks over what the device holds at once)}
  //   cpu: {"kernel","range","grain","parts" (threads that get work),"threads"}
  virtual Result<Json> LaunchFacts() const { return Json(Json::array()); }

 protected:
  std::vector<int64_t> scratch_bytes_;
  std::vector<size_t> zeroed_;  // scratch buffers
};

// Device memory of this process that a timing wants in the caches.
struct WarmBytes {
  const void* data = nullptr;
  int64_t bytes = 0;
};

class Compiler {
 public:
  virtual ~Compiler() = default;
  // For one architecture. `timeout_ms` bounds it where the compiler is a process.
  virtual CompileResult Compile(const KernelSource& source, int timeout_ms) = 0;
};

// Compiles for arch().target.
class Target : public Compiler {
 public:
  virtual const DeviceArch& arch() const = 0;
  // Loads a binary and prepares the plan for `signature`. Leaves the device that is current in this
  // thread as it was. REQUIRES: candidate.Validate(signature).ok().
  virtual Result<std::unique_ptr<Executable>> Load(const std::string& binary,
                                                   const Candidate& candidate,
                                                   const OpSignature& signature) = 0;

  // All calls from here on make the device current. Each may report an earlier asynchronous error
  // of the device; after such an error the process must be given up.
  //
  // Memory of this process alone, 256-byte aligned. Used by tests, as are CopyIn and CopyOut.
  virtual Result<DeviceBuffer> Allocate(int64_t bytes) = 0;
  // Memory of this process that others map. It comes in whole granules of so many bytes.
  virtual int64_t granule() const = 0;
  // At least `bytes` bytes, which may be read and written here. kNoMemory.
  virtual Result<SharedMemory> Share(int64_t bytes) = 0;
  // Maps the memory behind a descriptor that another process exported (SharedMemory::Export), which
  // may be closed afterwards. `bytes`: SharedMemory::bytes(). May be called again for the same
  // memory, which is then at two addresses. `shift`: see kMapShifts. kNoMemory; kCorruption, or on
  // cuda kInternal, for another kind of descriptor.
  virtual Result<DeviceBuffer> Map(int fd, int64_t bytes, bool writable, int64_t shift) = 0;
  // Overwrites what a kernel may leave on the device outside of buffers, before what is launched
  // next (cuda/on_chip_scrub.h). `seed` decides with what, its last two bits with what kind of
  // numbers. Nothing on the CPU.
  virtual Status Scrub(uint64_t /*seed*/) { return Status::Ok(); }
  // Bytes that this process could still allocate: on cuda what the driver reports as free, on the
  // CPU what the system and the process's memory cgroups have left, page cache included.
  virtual Result<int64_t> FreeBytes() = 0;
  virtual Status CopyIn(void* device, const void* host, int64_t bytes) = 0;
  virtual Status CopyOut(void* host, const void* device, int64_t bytes) = 0;
  virtual Status Synchronize() = 0;
  // The context that the worker launches with (its own stream or threads).
  virtual LaunchContext launch_context() = 0;
  // Nanoseconds of device time for one call of `enqueue`, caches cold: evicts them, then measures.
  Result<double> TimeOnce(const std::function<Status()>& enqueue) { return TimeWarm(enqueue, {}); }
  // As TimeOnce, with the bytes of `warm` read after the eviction, so that they are in the caches.
  virtual Result<double> TimeWarm(const std::function<Status()>& enqueue,
                                  std::span<const WarmBytes> warm) = 0;
  // What the hardware counts during one call of `enqueue`, which launches `executable`, caches cold
  // before it as in TimeOnce:
  //   {"tier":n,"passes":n,"note":s,"kernels":[executable.LaunchFacts()],"metrics":{name: number}}
  // "tier" is what was reached of the `tier` asked for (0 to kMaxProfileTier): 0 gives no metrics
  // and runs nothing; what is not allowed or not there is left out, and "note" says why. `enqueue`
  // runs several times. An error is that of the work or of the device. Metrics:
  //   cuda: CUPTI's names, see TierMetrics (cuda/metric_schedule.h)
  //   cpu, tier 1: see CountPerf (cpu/perf_counters.h)
  virtual Result<Json> Profile(const Executable& executable, const std::function<Status()>& enqueue,
                               int tier) = 0;
  // What the device is, and what it measurably does; measured by the first call, in less than two
  // seconds, with kernels of this project's own (never taken from a table):
  //   {"name","arch",...,"bandwidth_gb_s","fp32_tflops",...,"note"}
  // A rate that could not be measured is left out, and "note" says why. 1 GB is 1e9 bytes.
  //   cuda: "sms","clock_mhz","l2_bytes","memory_bytes","threads_per_sm","registers_per_sm",
  //         "shared_bytes_per_sm","shared_bytes_per_block_optin","driver" as the driver tells them;
  //         the rates of cuda/device_rates.h
  //   cpu: "cores","threads","l1d_bytes","l2_bytes","l3_bytes","compiler"; rates of cpu/cpu_rates.h
  virtual Result<Json> Facts() = 0;
  // True once the device reported an error that no later call recovers from: give the process up.
  virtual bool poisoned() const { return false; }
};

struct CpuTargetOptions {
  std::string cxx;  // host compiler; empty: g++, else c++, else clang++
  // Of the pool behind launch_context(); 0: OMP_NUM_THREADS, else one per physical core that this
  // process may use.
  int threads = 0;
};

struct CudaTargetOptions {
  // Folders that may hold libnvrtc, libnvJitLink and the CUDA headers, searched first: a toolkit's
  // root or PyPI's site-packages/nvidia/cu13.
  std::vector<std::string> search_paths;
  // false: launch_context() and TimeOnce use the legacy default stream, which is PyTorch's unless
  // told otherwise.
  bool own_stream = true;
  // true: Profile may open CUPTI. Only for a process that has no other profiler: the worker, never
  // one that holds PyTorch.
  bool counters = false;
};

// The target of this machine's device `index`. kUnavailable says what is missing and what to do. A
// compiler that is missing is no error here, as stored binaries load without one: Compile then
// gives a fault. The device that is current in this thread stays so.
Result<std::unique_ptr<Target>> MakeCpuTarget(const CpuTargetOptions& options = {});
Result<std::unique_ptr<Target>> MakeCudaTarget(int device_index,
                                               const CudaTargetOptions& options = {});

}  // namespace cudaforge
