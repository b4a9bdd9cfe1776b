#include "target/cpu/cpu_compiler.h"

#include <chrono>
#include <csignal>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "target/elf_check.h"
#include "target/source_scan.h"

namespace cudaforge {
namespace {

constexpr size_t kMaxBinary = 64u << 20;
constexpr size_t kShownLog = 500;

constexpr std::string_view kIncludes[] = {"cmath",       "cstdint",    "cstddef", "cstring",
                                          "algorithm",   "limits",     "bit",     "cfloat",
                                          "type_traits", "immintrin.h"};
constexpr std::string_view kPragmas[] = {
    "GCC ivdep",       "GCC unroll", "GCC optimize", "GCC push_options",
    "GCC pop_options", "omp simd",   "once",         "omp declare simd"};
// Inline assembly, code that runs at load, and exits from a computation.
constexpr std::string_view kBanned[] = {
    "asm", "__asm", "__asm__", "constructor", "__constructor__", "destructor", "__destructor__",
    "section", "__section__", "ifunc", "__ifunc__", "init_priority", "__init_priority__",
    "__has_include", "__has_include_next", "__has_embed", "_Pragma", "system", "popen", "fork",
    "vfork", "clone", "execl", "execv", "execve", "execvp", "posix_spawn", "dlopen", "dlsym",
    "mmap", "mprotect", "syscall", "ptrace", "socket", "connect", "open", "openat", "fopen", "kill",
    "signal", "sigaction", "pthread_create", "getenv", "setenv", "putenv", "atexit", "_exit",
    "environ",
    // memory outside of buffers, or with old contents
    "_GLOBAL_OFFSET_TABLE_", "_DYNAMIC", "alloca", "uninitialized", "__uninitialized__",
    "__builtin_frame_address", "__builtin_return_address", "__builtin_thread_pointer", "_mm_setcsr",
    "_mm_getcsr", "__builtin_ia32_ldmxcsr", "__builtin_ia32_stmxcsr", "__builtin_readcyclecounter"};
// Clocks, random numbers, thread-local storage, processor modes that outlive a call, and queries
// about the processor.
constexpr std::string_view kBannedPrefixes[] = {"__rd",
                                                "__read",
                                                "__write",
                                                "_rd",
                                                "_read",
                                                "_write",
                                                "_xgetbv",
                                                "_xsetbv",
                                                "_xbegin",
                                                "_xtest",
                                                "_umwait",
                                                "_umonitor",
                                                "_tpause",
                                                "_MM_SET_",
                                                "_fx",
                                                "_xsave",
                                                "_xrstor",
                                                "__builtin_cpu_",
                                                "__builtin_alloca",
                                                "__builtin_ia32_rd",
                                                "__builtin_ia32_wr",
                                                "__builtin_ia32_fx",
                                                "__builtin_ia32_read",
                                                "__builtin_ia32_x",
                                                "__builtin_ia32_umwait",
                                                "__builtin_ia32_umonitor",
                                                "__builtin_ia32_tpause"};

// Removes the random folder name, so that equal sources have equal logs.
std::string WithoutFolder(std::string log, const std::string& folder) {
  const std::string prefix = folder + "/";
  for (size_t at = log.find(prefix); at != std::string::npos; at = log.find(prefix, at)) {
    log.erase(at, prefix.size());
  }
  return log;
}

// The line of `log` in which a compiler, assembler or linker reports a full disk or being killed
// (usually for lack of memory); empty if there is none. Ignores a source's own messages (#error,
// static_assert), which begin with the source's name.
std::string FaultOfMachine(const std::string& log) {
  for (const std::string_view line : Split(log, '\n')) {
    const bool of_source = line.starts_with("kernel.cc") || line.starts_with(' ');
    const size_t said = line.find(": ");
    if (of_source && (said == std::string::npos ||
                      !line.substr(said).starts_with(": fatal error: error writing to "))) {
      continue;
    }
    for (const char* words : {"No space left on device", "Disk quota exceeded",
                              "Killed signal terminated program", "virtual memory exhausted"}) {
      if (line.find(words) != std::string::npos) return std::string(line);
    }
  }
  return "";
}

}  // namespace

Result<std::string> FindHostCompiler(const std::string& wanted) {
  if (!wanted.empty()) {
    if (IsProgram(wanted)) return wanted;
    return Status::Unavailable("the host compiler '" + wanted +
                               "' cannot be run; set CUDAFORGE_CXX to a C++20 compiler");
  }
  for (const char* name : {"g++", "c++", "clang++"}) {
    if (IsProgram(name)) return std::string(name);
  }
  return Status::Unavailable(
      "no host C++ compiler (looked for g++, c++ and clang++ on PATH); install g++ or set "
      "CUDAFORGE_CXX");
}

Status CheckCpuSource(const std::string& code) {
  ScanRules rules;
  rules.includes = kIncludes;
  rules.pragmas = kPragmas;
  rules.banned_words = kBanned;
  rules.banned_prefixes = kBannedPrefixes;
  return ScanSource(code, rules);
}

namespace {

// The option that zero-initialises stack variables, so that no kernel sees earlier calls' data;
// empty if unsupported (GCC before 12, clang before 16).
std::vector<std::string> ZeroedStack(const std::string& cxx, int timeout_ms) {
  static std::mutex mutex;
  static std::map<std::string, bool> known;
  const std::string option = "-ftrivial-auto-var-init=zero";
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [found, fresh] = known.emplace(cxx, false);
  if (fresh) {
    const auto run = RunProcess({cxx, option, "-x", "c++", "-E", "/dev/null", "-o", "/dev/null"},
                                {.timeout_ms = timeout_ms, .join_errors = true});
    found->second = run.ok() && run->exit_code == 0;
  }
  return found->second ? std::vector{option} : std::vector<std::string>{};
}

CompileResult RunCompiler(const std::string& cxx, const std::string& code, int timeout_ms) {
  const Result<TempDir> folder = TempDir::Create("cudaforge-cpu-");
  if (!folder.ok()) return CompileResult::Fault(folder.status());
  const std::string source = folder->path() + "/kernel.cc";
  const std::string object = folder->path() + "/kernel.so";
  if (const Status status = WriteFileAtomic(source, code); !status.ok())
    return CompileResult::Fault(status);

  // No reassociation, finite-only maths or contraction: with fusion, x * 3 - max(x * 3) is not 0 at
  // the maximum, and its exponential may overflow. Symbols stay visible, because kernels are found
  // by name, but bind inside the library first.
  std::vector<std::string> argv = {cxx,
                                   "-std=c++20",
                                   "-O3",
                                   "-march=native",
                                   "-fopenmp-simd",
                                   "-ffp-contract=off",
                                   "-fno-math-errno",
                                   "-fno-trapping-math",
                                   "-fno-exceptions",
                                   "-Werror=vla",
                                   "-fno-rtti",
                                   "-fno-semantic-interposition",
                                   "-fvisibility-inlines-hidden",
                                   "-fPIC",
                                   "-shared",
                                   "-nostartfiles",
                                   "-s",
                                   "-Wl,-Bsymbolic",
                                   "-Wl,--no-undefined",
                                   "-Wl,--as-needed",
                                   "-Wl,-z,noexecstack",
                                   "-Wl,-z,relro",
                                   "-Wl,-z,now",
                                   "-o",
                                   object,
                                   source};
  const std::vector<std::string> zeroed = ZeroedStack(cxx, timeout_ms);
  argv.insert(argv.begin() + 1, zeroed.begin(), zeroed.end());
  const Result<ProcessResult> run =
      RunProcess(argv, {.timeout_ms = timeout_ms, .join_errors = true});
  if (!run.ok()) return CompileResult::Fault(run.status());
  std::string log = WithoutFolder(run->output, folder->path());
  if (run->timed_out) {
    return CompileResult::Failure("the compiler was stopped after " + std::to_string(timeout_ms) +
                                  " ms\n" + log);
  }
  if (run->too_large) return CompileResult::Failure("the compiler wrote too much output\n" + log);
  if (run->term_signal == SIGKILL) {  // by the system for lack of memory, or by another process
    return CompileResult::Fault(Status::Unavailable("the compiler was killed"));
  }
  if (run->term_signal != 0) {
    return CompileResult::Failure("the compiler ended by signal " +
                                  std::to_string(run->term_signal) + "\n" + log);
  }
  if (run->exit_code != 0) {
    if (const std::string fault = FaultOfMachine(log); !fault.empty()) {
      return CompileResult::Fault(Status::Unavailable(fault));
    }
    return CompileResult::Failure(
        log.empty() ? "the compiler gave exit code " + std::to_string(run->exit_code) : log);
  }
  Result<std::string> binary = ReadFile(object, kMaxBinary);
  if (!binary.ok())
    return CompileResult::Failure("the compiler wrote no library: " + binary.status().message());
  if (const Status clean = CheckCpuLibrary(*binary); !clean.ok()) {
    return CompileResult::Failure("refused: " + clean.message());
  }
  CompileResult result = CompileResult::Failure(std::move(log));
  result.ok = true;
  result.binary = *std::move(binary);
  return result;
}

// Checks that this machine can compile a correct program.
Status Probe(const std::string& cxx, int timeout_ms) {
  const CompileResult probe = RunCompiler(
      cxx, "#include <cmath>\nextern \"C\" double f(double x) { return std::sqrt(x); }\n",
      timeout_ms);
  if (probe.ok) return Status::Ok();
  return Status::Unavailable(
      cxx + " cannot compile a one-line function: " + probe.log.substr(0, kShownLog));
}

}  // namespace

CompileResult CompileCpu(const std::string& code, const std::string& wanted_cxx, int timeout_ms) {
  if (const Status status = CheckCpuSource(code); !status.ok())
    return CompileResult::Failure("refused: " + status.message());
  const Result<std::string> cxx = FindHostCompiler(wanted_cxx);
  if (!cxx.ok()) return CompileResult::Fault(cxx.status());
  const auto begin = std::chrono::steady_clock::now();
  CompileResult result = RunCompiler(*cxx, code, timeout_ms);
  const auto half = std::chrono::milliseconds(timeout_ms / 2);
  // Distinguishes a bad source from a machine without assembler, memory or descriptors. A
  // compilation of half the time limit is the source's fault.
  if (!result.ok && result.fault.ok() && std::chrono::steady_clock::now() - begin < half) {
    const Status status = Probe(*cxx, timeout_ms / 2);
    if (!status.ok()) return CompileResult::Fault(status);
  }
  return result;
}

}  // namespace cudaforge
