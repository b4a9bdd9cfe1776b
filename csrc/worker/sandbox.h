// The sandbox for candidate code on the CPU, entered by the process that runs it. Linux.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace cudaforge {

// The process's use of the candidate.
enum class SandboxUse {
  kLaunch,   // no clock: no system calls for time, no rdtsc, no kernel time pages
  kTime,     // with the clock: this process measures
  kProfile,  // kTime, plus perf_event_open, its descriptors, and reading files (/proc/self/task)
};

// A memory fault, as reported by the faulting process. It may be forged.
struct FaultReport {
  int signal = 0;
  uint64_t address = 0;
  bool known_address = false;  // false: unknown, as for rdtsc or a non-canonical address
  bool write = false;
  bool read_clock = false;  // the instruction was rdtsc or rdtscp
};

// A pipe's text: the reports of its writer's fault handler, then the rest.
inline constexpr size_t kFaultReportBytes = 24;
// Parses the report at the start of `bytes`.
Result<FaultReport> ParseFaultReport(std::string_view bytes);
// The exit code of a process that reported a fault.
inline constexpr int kFaultExitCode = 86;

// Step 1, in a process just forked, with one thread. It dies with `parent`, cannot be traced, gains
// no privileges, and keeps no descriptor except `pipe`.
void EnterFork(int pipe, int parent);
// Step 2, in each thread that will run candidate code: a stack for the fault handler, and for
// kLaunch no rdtsc.
void EnterThread(SandboxUse use);
// Step 3, once for all threads. Faults are reported to `pipe`. System calls that `use` does not
// need end the process by SIGSYS. Reserves heap, because allocations may not make system calls. A
// kernel without seccomp has no such filter; `cudaforge doctor` reports that.
void EnterSandbox(SandboxUse use, int pipe);

}  // namespace cudaforge
