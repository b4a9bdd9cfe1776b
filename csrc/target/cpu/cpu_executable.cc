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
  std::vector<int64_t> ints;
  std::vector<double> floats;
  int64_t range = 0;
  int64_t grain = 1;
};

struct Call {
  const CpuLaunch* launch;
  void* const* buffers;
};

void RunRange(void* context, int64_t begin, int64_t end) {
  const Call& call = *static_cast<const Call*>(context);
  call.launch->kernel(call.buffers, call.launch->ints.data(), call.launch->floats.data(), begin,
                      end);
}

class CpuExecutable : public Executable {
 public:
  explicit CpuExecutable(DynamicLibrary library) : library_(std::move(library)) {}

  Status Prepare(const LaunchPlan& plan, const OpSignature& signature) {
    CF_ASSIGN_OR_RETURN(scratch_bytes_, EvaluateScratch(plan, signature));
    zeroed_ = ZeroedScratch(plan);
    needs_.IncludeScratch(scratch_bytes_.size());
    for (const cudaforge::Launch& launch : plan.launches) {
      CpuLaunch ready;
      ready.kernel = reinterpret_cast<KernelFn>(library_.Symbol(launch.kernel.c_str()));
      if (ready.kernel == nullptr) {
        return Status::InvalidArgument("the library has no function '" + launch.kernel +
                                       "': is it declared extern \"C\"?");
      }
      CF_ASSIGN_OR_RETURN(const EvaluatedArgs args, EvaluateArgs(launch, signature));
      for (const EvaluatedArg& arg : args) {
        if (arg.is_buffer) ready.buffers.push_back(arg.buffer);
        if (!arg.is_buffer && arg.is_float) ready.floats.push_back(arg.number);
        if (!arg.is_buffer && !arg.is_float) ready.ints.push_back(arg.integer);
      }
      CF_ASSIGN_OR_RETURN(ready.range, launch.range.Evaluate(signature));
      CF_ASSIGN_OR_RETURN(ready.grain, launch.grain.Evaluate(signature));
      if (ready.range < 0 || ready.grain < 1) {
        return Status::InvalidArgument("launch of '" + launch.kernel +
                                       "': range must be >= 0 and grain >= 1");
      }
      needs_.Include(ready.buffers);
      launches_.push_back(std::move(ready));
      names_.push_back(launch.kernel);
    }
    return Status::Ok();
  }

  Status Launch(std::span<void* const> inputs, std::span<void* const> outputs,
                std::span<void* const> scratch, const LaunchContext& context) const override {
    CF_RETURN_IF_ERROR(needs_.Check(inputs, outputs, scratch));
    for (size_t i : zeroed_) std::memset(scratch[i], 0, static_cast<size_t>(scratch_bytes_[i]));
    std::array<void*, kMaxLaunchArgs> buffers;
    for (const CpuLaunch& launch : launches_) {
      if (launch.range == 0) continue;
      for (size_t i = 0; i < launch.buffers.size(); ++i) {
        buffers[i] = Resolve(launch.buffers[i], inputs, outputs, scratch);
      }
      Call call{&launch, buffers.data()};
      if (context.parallel_for == nullptr) {
        RunRange(&call, 0, launch.range);
      } else {
        context.parallel_for(launch.range, launch.grain, RunRange, &call);
      }
    }
    return Status::Ok();
  }

  Result<Json> LaunchFacts() const override {
    const int64_t threads = ThreadPool::Global().threads();
    Json facts = Json::array();
    for (size_t i = 0; i < launches_.size(); ++i) {
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
  DynamicLibrary library_;
  BufferNeeds needs_;
  std::vector<CpuLaunch> launches_;
  std::vector<std::string> names_;  // of the kernels, launch by launch
};

// A path of an open file that no other call gives. The loader takes two paths that are spelled
// alike for the same library, and the number of a descriptor that was closed comes back: so a
// counter is spelled out in slashes and dots, which mean nothing in a path.
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
