// cudaforge-worker: compiles and runs candidates for the parent process, over descriptor 3.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/subprocess.h"
#include "target/cpu/cpu_compiler.h"
#include "target/cuda/cuda_compiler.h"
#include "target/cuda/nvrtc_compiler.h"
#include "worker/server.h"

extern char** environ;

#ifdef __SANITIZE_ADDRESS__
// Lets a candidate's fault end a sanitized worker by its signal, as without sanitizers. Its
// allocator must not read the clock in the sandbox.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:"
         "allocator_release_to_os_interval_ms=-1";
}
#endif

namespace cudaforge {
namespace {

bool MayKeep(std::string_view variable) {
  for (std::string_view name :
       {"PATH=", "LD_LIBRARY_PATH=", "HOME=", "TMPDIR=", "CUDA_", "OMP_NUM_THREADS="}) {
    if (variable.starts_with(name)) return true;
  }
  return false;
}

// Restarts the program without variables that candidates should not see. Keeps keys and tokens out
// of this process's memory and /proc/self/environ. Returns if there is nothing to drop.
void DropEnvironment(char** argv) {
  std::vector<char*> kept;
  bool dropped = false;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (MayKeep(*variable)) {
      kept.push_back(*variable);
    } else {
      dropped = true;
    }
  }
  if (!dropped) return;
  kept.push_back(nullptr);
  execve("/proc/self/exe", argv, kept.data());
  std::perror("cudaforge-worker: cannot restart");
  _exit(3);
}

void Isolate() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  if (getpgrp() != getpid()) setpgid(0, 0);
  // Discards candidates' output; closes inherited descriptors.
  const int null = open("/dev/null", O_RDWR);
  if (null >= 0) {
    for (int fd = 0; fd < kChildSocket; ++fd) dup2(null, fd);
  }
  syscall(SYS_close_range, kChildSocket + 1, ~0u, 0);
  fcntl(kChildSocket, F_SETFD, FD_CLOEXEC);
}

// A worker that cannot compile must not start: else every candidate would seem wrong on a machine
// without a compiler.
Result<std::unique_ptr<Target>> MakeTarget(const WorkerSetup& setup) {
  if (setup.device == DeviceType::kCpu) {
    CF_RETURN_IF_ERROR(FindHostCompiler(setup.cxx).status());
    CpuTargetOptions options;
    options.cxx = setup.cxx;
    return MakeCpuTarget(options);
  }
  CF_ASSIGN_OR_RETURN(const NvrtcCompiler compiler, NvrtcCompiler::Create(setup.cuda_search_paths));
  CudaTargetOptions options;
  options.search_paths = setup.cuda_search_paths;
  options.counters = true;  // this process has no other profiler
  CF_ASSIGN_OR_RETURN(auto target, MakeCudaTarget(setup.device_index, options));
  std::string_view arch = target->arch().target;
  arch.remove_prefix(arch.find(':') + 1);  // "cuda:sm_90a"
  CF_RETURN_IF_ERROR(compiler.CheckArch(std::string(arch)));
  return target;
}

// For tests: on a CPU the running worker also compiles (CompilersOfThisMachine).
class HostCompiler : public Compiler {
 public:
  explicit HostCompiler(std::string cxx) : cxx_(std::move(cxx)) {}
  CompileResult Compile(const KernelSource& source, int timeout_ms) override {
    if (source.language != Language::kCpu) return CompileResult::Failure("only C++ is compiled");
    return CompileCpu(source.code, cxx_, timeout_ms);
  }

 private:
  const std::string cxx_;
};

Result<std::unique_ptr<Compiler>> MakeCompiler(const WorkerSetup& setup) {
  constexpr std::string_view kCuda = "cuda:";
  if (!setup.compiles_for.starts_with(kCuda)) {
    CF_RETURN_IF_ERROR(FindHostCompiler(setup.cxx).status());
    return std::unique_ptr<Compiler>(std::make_unique<HostCompiler>(setup.cxx));
  }
  const std::string arch = setup.compiles_for.substr(kCuda.size());
  CF_ASSIGN_OR_RETURN(const NvrtcCompiler compiler, NvrtcCompiler::Create(setup.cuda_search_paths));
  CF_RETURN_IF_ERROR(compiler.CheckArch(arch));
  return std::unique_ptr<Compiler>(std::make_unique<CudaCompiler>(arch, setup.cuda_search_paths));
}

int Main(char** argv) {
  if (!HasChildSocket()) {
    std::fputs("cudaforge-worker is started by CudaForge, with a socket as descriptor 3\n", stderr);
    return 2;
  }
  DropEnvironment(argv);
  Isolate();
  return ServeWorker(kChildSocket, MakeTarget, MakeCompiler).ok() ? 0 : 1;
}

}  // namespace
}  // namespace cudaforge

int main(int, char** argv) { return cudaforge::Main(argv); }
