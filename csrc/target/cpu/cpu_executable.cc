#include "target/cpu/cpu_executable.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/dynamic_library.h"
#include "base/memory_file.h"
#include "target/cpu/control_words.h"
#include "target/cpu/sealed_bytes.h"
#include "target/cpu/thread_pool.h"
#include "target/elf_check.h"
#include "target/launch_args.h"

namespace cudaforge {
namespace {

using KernelFn = void (*)(void* const* buffers, const int64_t* ints, const double* floats,
                          int64_t begin, int64_t end);

struct CpuLaunch {
  KernelFn kernel = nullptr;
  std::vector<BufferRef> buffers;
  const int64_t* ints = nullptr;  // this and the next point into the executable's sealed bytes
  const double* floats = nullptr;
  int64_t range = 0;
  int64_t grain = 1;
};

struct Call {
  const CpuLaunch* launch;
  void* const* buffers;
  std::atomic<bool> changed = false;  // a kernel changed the control words
};

void RunRange(void* context, int64_t begin, int64_t end) {
  Call& call = *static_cast<Call*>(context);
  const ControlWords before = ControlWords::Read();
  call.launch->kernel(call.buffers, call.launch->ints, call.launch->floats, begin, end);
  if (ControlWords::Read() == before) return;
  before.Restore();
  call.changed.store(true, std::memory_order_relaxed);
}

Status RunLaunch(const CpuLaunch& launch, void* const* buffers, const LaunchContext& context) {
  if (launch.range == 0) return Status::Ok();
  Call call{&launch, buffers};
  if (context.parallel_for == nullptr) {
    RunRange(&call, 0, launch.range);
  } else {
    context.parallel_for(launch.range, launch.grain, RunRange, &call);
  }
  if (!call.changed.load(std::memory_order_relaxed)) return Status::Ok();
  return Status::Unsupported(
      "the kernel changed how the processor rounds or treats subnormal numbers (MXCSR or the x87 "
      "control word)");
}

template <typename T>
void AppendBytes(std::vector<char>& bytes, const std::vector<T>& values) {
  static_assert(sizeof(T) == 8);
  const char* const first = reinterpret_cast<const char*>(values.data());
  bytes.insert(bytes.end(), first, first + values.size() * sizeof(T));
}

// A bound launch plan. The first `preparing` launches prepare operands. `sealed` has the
// buffers of each launch, one launch after the other.
class CpuBoundLaunch : public BoundLaunch {
 public:
  CpuBoundLaunch(std::span<const CpuLaunch> launches, size_t preparing, SealedBytes sealed,
                 std::vector<std::pair<void*, size_t>> zeroed)
      : launches_(launches),
        preparing_(preparing),
        sealed_(std::move(sealed)),
        zeroed_(std::move(zeroed)) {}

  Status Prepare(const LaunchContext& context) const override {
    return RunPart(0, preparing_, context);
  }
  Status Run(const LaunchContext& context) const override {
    return RunPart(preparing_, launches_.size(), context);
  }

 private:
  Status RunPart(size_t begin, size_t end, const LaunchContext& context) const {
    for (const auto& [data, bytes] : zeroed_) std::memset(data, 0, bytes);
    auto* buffers = reinterpret_cast<void* const*>(sealed_.data());
    for (size_t i = 0; i < end; ++i) {
      if (i >= begin) CF_RETURN_IF_ERROR(RunLaunch(launches_[i], buffers, context));
      buffers += launches_[i].buffers.size();
    }
    return Status::Ok();
  }

  std::span<const CpuLaunch> launches_;
  size_t preparing_;
  SealedBytes sealed_;
  std::vector<std::pair<void*, size_t>> zeroed_;
};

class CpuExecutable : public Executable {
 public:
  explicit CpuExecutable(DynamicLibrary library) : library_(std::move(library)) {}

  Status Prepare(const LaunchPlan& plan, const OpSignature& signature) {
    if (!plan.tensor_maps.empty()) return Status::Unsupported("a CPU has no tensor maps");
    CF_ASSIGN_OR_RETURN(scratch_bytes_, EvaluateScratch(plan, signature));
    prepared_count_ = plan.prepared_bytes.size();
    preparing_ = plan.prepare.size();
    zeroed_ = ZeroedScratch(plan);
    needs_.IncludeScratch(scratch_bytes_.size());
    preparing_needs_.IncludeScratch(scratch_bytes_.size());
    std::vector<char> numbers;
    std::vector<std::pair<size_t, size_t>> places;  // each launch's integers and floats
    std::vector<cudaforge::Launch> launches = plan.prepare;
    launches.insert(launches.end(), plan.launches.begin(), plan.launches.end());
    for (const cudaforge::Launch& launch : launches) {
      CpuLaunch ready;
      ready.kernel = reinterpret_cast<KernelFn>(library_.Symbol(launch.kernel.c_str()));
      if (ready.kernel == nullptr) {
        return Status::InvalidArgument("the library has no function '" + launch.kernel +
                                       "': is it declared extern \"C\"?");
      }
      CF_ASSIGN_OR_RETURN(const EvaluatedArgs args, EvaluateArgs(launch, plan, signature));
      std::vector<int64_t> ints;
      std::vector<double> floats;
      for (const EvaluatedArg& arg : args) {
        if (arg.is_buffer) ready.buffers.push_back(arg.buffer);
        if (!arg.is_buffer && arg.is_float) floats.push_back(arg.number);
        if (!arg.is_buffer && !arg.is_float) ints.push_back(arg.integer);
      }
      const size_t ints_at = numbers.size();
      AppendBytes(numbers, ints);
      places.emplace_back(ints_at, numbers.size());
      AppendBytes(numbers, floats);
      CF_ASSIGN_OR_RETURN(ready.range, launch.range.Evaluate(signature));
      CF_ASSIGN_OR_RETURN(ready.grain, launch.grain.Evaluate(signature));
      if (ready.range < 0 || ready.grain < 1) {
        return Status::InvalidArgument("launch of '" + launch.kernel +
                                       "': range must be >= 0 and grain >= 1");
      }
      (launches_.size() < preparing_ ? preparing_needs_ : needs_).Include(ready.buffers);
      launches_.push_back(std::move(ready));
      names_.push_back(launch.kernel);
    }
    CF_ASSIGN_OR_RETURN(numbers_, SealedBytes::Of(numbers));
    for (size_t i = 0; i < launches_.size(); ++i) {
      launches_[i].ints = reinterpret_cast<const int64_t*>(numbers_.data() + places[i].first);
      launches_[i].floats = reinterpret_cast<const double*>(numbers_.data() + places[i].second);
    }
    return Status::Ok();
  }

  Status Launch(std::span<void* const> inputs, std::span<void* const> outputs,
                std::span<void* const> scratch, const LaunchContext& context) const override {
    CF_RETURN_IF_ERROR(needs_.Check(inputs, outputs, scratch));
    return RunAll(Launches(), inputs, outputs, scratch, context);
  }

  Status PrepareOperands(std::span<void* const> inputs, std::span<void* const> scratch,
                         const LaunchContext& context) const override {
    CF_RETURN_IF_ERROR(preparing_needs_.Check(inputs, {}, scratch));
    return RunAll(std::span(launches_).first(preparing_), inputs, {}, scratch, context);
  }

  Result<std::unique_ptr<BoundLaunch>> Bind(std::span<void* const> inputs,
                                            std::span<void* const> outputs,
                                            std::span<void* const> scratch) const override {
    CF_RETURN_IF_ERROR(needs_.Check(inputs, outputs, scratch));
    std::vector<char> pointers;
    for (const CpuLaunch& launch : launches_) {
      std::vector<void*> buffers;
      for (const BufferRef& ref : launch.buffers) {
        buffers.push_back(Resolve(ref, inputs, outputs, scratch));
      }
      AppendBytes(pointers, buffers);
    }
    CF_ASSIGN_OR_RETURN(SealedBytes sealed, SealedBytes::Of(pointers));
    std::vector<std::pair<void*, size_t>> zeroed;
    for (size_t i : zeroed_) {
      zeroed.emplace_back(scratch[i], static_cast<size_t>(scratch_bytes_[i]));
    }
    return std::unique_ptr<BoundLaunch>(std::make_unique<CpuBoundLaunch>(
        launches_, preparing_, std::move(sealed), std::move(zeroed)));
  }

  Result<Json> LaunchFacts() const override {
    const int64_t threads = ThreadPool::GlobalThreads();
    Json facts = Json::array();
    for (size_t i = preparing_; i < launches_.size(); ++i) {
      const CpuLaunch& launch = launches_[i];
      const int64_t parts = launch.range == 0 ? 0 : (launch.range - 1) / launch.grain + 1;
      facts.push_back(Json{{"kernel", names_[i]},
                           {"range", launch.range},
                           {"grain", launch.grain},
                           {"parts", std::min(parts, threads)},
                           {"threads", threads}});
    }
    return facts;
  }

 private:
  std::span<const CpuLaunch> Launches() const { return std::span(launches_).subspan(preparing_); }

  Status RunAll(std::span<const CpuLaunch> launches, std::span<void* const> inputs,
                std::span<void* const> outputs, std::span<void* const> scratch,
                const LaunchContext& context) const {
    for (size_t i : zeroed_) std::memset(scratch[i], 0, static_cast<size_t>(scratch_bytes_[i]));
    std::array<void*, kMaxLaunchArgs> buffers;
    for (const CpuLaunch& launch : launches) {
      for (size_t i = 0; i < launch.buffers.size(); ++i) {
        buffers[i] = Resolve(launch.buffers[i], inputs, outputs, scratch);
      }
      CF_RETURN_IF_ERROR(RunLaunch(launch, buffers.data(), context));
    }
    return Status::Ok();
  }

  DynamicLibrary library_;
  BufferNeeds needs_, preparing_needs_;
  SealedBytes numbers_;              // the launches' integers and floats
  std::vector<CpuLaunch> launches_;  // the first `preparing_` prepare operands
  size_t preparing_ = 0;
  std::vector<std::string> names_;  // the kernel of each launch
};

// A path of an open file, unique to this call. The loader identifies libraries by path, and
// descriptor numbers are reused. So a counter is encoded as redundant slashes and dots.
std::string UniquePath(int descriptor) {
  static std::atomic<uint64_t> last{0};
  std::string path = "/proc/self";
  for (uint64_t count = ++last; count != 0; count >>= 1) path += count % 2 == 0 ? "/" : "/.";
  return path + "/fd/" + std::to_string(descriptor);
}

}  // namespace

Result<std::unique_ptr<Executable>> LoadCpu(const std::string& binary, const Candidate& candidate,
                                            const OpSignature& signature) {
  CF_RETURN_IF_ERROR(CheckCpuLibrary(binary));
  CF_ASSIGN_OR_RETURN(const UniqueFd file, MakeMemFile(std::string_view(binary)));
  Result<DynamicLibrary> library = DynamicLibrary::Open({UniquePath(file.get())});
  if (!library.ok())
    return Status::Corruption("the loader refuses the kernel library: " +
                              library.status().message());
  auto executable = std::make_unique<CpuExecutable>(*std::move(library));
  CF_RETURN_IF_ERROR(executable->Prepare(candidate.plan, signature));
  return std::unique_ptr<Executable>(std::move(executable));
}

}  // namespace cudaforge
