#include "worker/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"

namespace cudaforge {
namespace {

constexpr size_t kFaultStackBytes = size_t{64} << 10;
constexpr size_t kSpareHeapBytes = size_t{16} << 20;
constexpr char kFaultMagic[4] = {'C', 'F', 'L', 'T'};

#if defined(__x86_64__)
constexpr uint32_t kAuditArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kAuditArch = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kAuditArch = 0;
#endif

// The message in the pipe. No padding: every byte is set.
struct WireFault {
  char magic[4];
  int32_t signal;
  uint64_t address;
  uint8_t known_address;
  uint8_t write;
  uint8_t read_clock;
  uint8_t zeros[5];
};
static_assert(sizeof(WireFault) == kFaultReportBytes);

int g_fault_pipe = -1;

// Async-signal-safe.
void OnFault(int signal, siginfo_t* info, void* context) {
  WireFault fault = {};
  std::memcpy(fault.magic, kFaultMagic, sizeof(kFaultMagic));
  fault.signal = signal;
  fault.address = reinterpret_cast<uintptr_t>(info->si_addr);
  fault.known_address = info->si_code > 0 && info->si_code != SI_KERNEL;
#if defined(__x86_64__)
  const greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  fault.write = (registers[REG_ERR] & 2) != 0;
  if (info->si_code == SI_KERNEL) {
    // The instruction is readable, because the processor has just fetched it.
    const auto* code = reinterpret_cast<const unsigned char*>(registers[REG_RIP]);
    const bool rdtsc = code[0] == 0x0f && code[1] == 0x31;
    const bool rdtscp = code[0] == 0x0f && code[1] == 0x01 && code[2] == 0xf9;
    fault.read_clock = rdtsc || rdtscp;
  }
#else
  static_cast<void>(context);
#endif
  const ssize_t written = write(g_fault_pipe, &fault, sizeof(fault));
  static_cast<void>(written);
  syscall(SYS_exit_group, kFaultExitCode);  // AddressSanitizer makes system calls in _exit
}

// Unmaps the kernel's time pages, and the code that reads them.
void UnmapClocks() {
  const Result<std::string> maps = ReadFile("/proc/self/maps");
  if (!maps.ok()) return;
  std::vector<std::pair<uintptr_t, uintptr_t>> found;
  for (const std::string_view line : Split(*maps, '\n')) {
    const bool clock =
        line.ends_with("[vvar]") || line.ends_with("[vvar_vclock]") || line.ends_with("[vdso]");
    if (!clock) continue;
    const char* const last = line.data() + line.size();
    uintptr_t begin = 0, end = 0;
    const auto dash = std::from_chars(line.data(), last, begin, 16);
    if (dash.ec != std::errc() || dash.ptr == last) continue;
    if (std::from_chars(dash.ptr + 1, last, end, 16).ec == std::errc()) {
      found.emplace_back(begin, end);
    }
  }
  for (const auto& [begin, end] : found) munmap(reinterpret_cast<void*>(begin), end - begin);
}

// Reserves heap for later allocations, and never returns memory.
void SetHeapAside() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  void* volatile spare = std::malloc(kSpareHeapBytes);
  std::free(spare);
}

class FilterProgram {
 public:
  FilterProgram() {
    Load(offsetof(seccomp_data, arch));
    Add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kAuditArch, 1, 0));
    Return(SECCOMP_RET_KILL_PROCESS);
  }
  void Allow(long call) {
    Load(offsetof(seccomp_data, nr));
    Add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
    Return(SECCOMP_RET_ALLOW);
  }
  // Allows the call only if `mask` of the lower half of argument `index` is `value`.
  void AllowIf(long call, unsigned index, uint32_t mask, uint32_t value) {
    Load(offsetof(seccomp_data, nr));
    Add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 4));
    Load(static_cast<uint32_t>(offsetof(seccomp_data, args) + index * sizeof(uint64_t)));
    Add(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
    Add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
    Return(SECCOMP_RET_ALLOW);
  }
  // For all threads.
  void Install() {
    Return(SECCOMP_RET_KILL_PROCESS);
    const sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
  }

 private:
  void Add(sock_filter one) { code_.push_back(one); }
  void Load(size_t offset) {
    Add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)));
  }
  void Return(uint32_t action) { Add(BPF_STMT(BPF_RET | BPF_K, action)); }

  std::vector<sock_filter> code_;
};

}  // namespace

Result<FaultReport> ParseFaultReport(std::string_view bytes) {
  WireFault fault;
  if (bytes.size() < sizeof(fault)) return Status::NotFound("no report of a fault");
  std::memcpy(&fault, bytes.data(), sizeof(fault));
  if (std::memcmp(fault.magic, kFaultMagic, sizeof(kFaultMagic)) != 0) {
    return Status::NotFound("no report of a fault");
  }
  return FaultReport{fault.signal, fault.address, fault.known_address != 0, fault.write != 0,
                     fault.read_clock != 0};
}

void EnterFork(int pipe, int parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent ended before prctl
  setpgid(0, 0);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  if (pipe > 0) syscall(SYS_close_range, 0u, static_cast<unsigned>(pipe) - 1, 0);
  syscall(SYS_close_range, static_cast<unsigned>(pipe) + 1, ~0u, 0);
}

void EnterThread(SandboxUse use) {
  void* const stack =
      mmap(nullptr, kFaultStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack != MAP_FAILED) {
    const stack_t alternate{.ss_sp = stack, .ss_flags = 0, .ss_size = kFaultStackBytes};
    sigaltstack(&alternate, nullptr);
  }
#if defined(PR_SET_TSC)
  if (use == SandboxUse::kLaunch) prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
#endif
}

void EnterSandbox(SandboxUse use, int pipe) {
  if (use == SandboxUse::kLaunch) UnmapClocks();
  g_fault_pipe = pipe;
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
  SetHeapAside();

  FilterProgram filter;
  filter.Allow(SYS_futex);
  filter.Allow(SYS_sched_yield);
  filter.Allow(SYS_timer_settime);
  filter.Allow(SYS_rt_sigreturn);  // for the signals that Team sends to its threads
  filter.Allow(SYS_exit_group);
#ifdef __SANITIZE_ADDRESS__
  for (const long call : {SYS_mmap, SYS_munmap, SYS_madvise, SYS_gettid, SYS_sigaltstack}) {
    filter.Allow(call);
  }
  if (use == SandboxUse::kProfile) {  // UndefinedBehaviorSanitizer tests memory with a pipe
    for (const long call : {SYS_pipe2, SYS_write}) filter.Allow(call);
  }
#endif
  filter.AllowIf(SYS_write, 0, ~0u, static_cast<uint32_t>(pipe));
  if (use != SandboxUse::kLaunch) {
    filter.Allow(SYS_clock_gettime);
    filter.Allow(SYS_getpid);  // for OfProcess in the pool
  }
  if (use == SandboxUse::kProfile) {
    for (const long call : {SYS_perf_event_open, SYS_ioctl, SYS_read, SYS_close, SYS_getdents64,
                            SYS_fstat, SYS_newfstatat, SYS_fcntl}) {
      filter.Allow(call);
    }
    filter.AllowIf(SYS_openat, 2, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY);
  }
  filter.Install();
}

}  // namespace cudaforge
