// The walls around candidate code on the CPU, put up by the process that is about to run it. Linux.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace cudaforge {

// What the process does with the candidate.
enum class SandboxUse {
  kLaunch,   // no clock: neither a system call nor rdtsc nor the kernel's pages that hold the time
  kTime,     // the clock is on: this process measures
  kProfile,  // ... and perf_event_open, its descriptors, and reading files (/proc/self/task)
};

// A memory fault as the process that had it tells. It may lie.
struct FaultReport {
  int signal = 0;
  uint64_t address = 0;
  bool known_address = false;  // false: none was given, as for rdtsc or an address of no form
  bool write = false;
  bool read_clock = false;  // the instruction was rdtsc or rdtscp
};

// A pipe's text: the reports that its writer's fault handler wrote, then the rest.
inline constexpr size_t kFaultReportBytes = 24;
// The report that `bytes` begin with; an error where they begin with none.
Result<FaultReport> ParseFaultReport(std::string_view bytes);
// A process with a report ends with this exit code.
inline constexpr int kFaultExitCode = 86;

// The first step, in a process just forked, which has one thread: it dies with `parent`, cannot be
// traced, gains no privileges, and has no descriptor but `pipe`.
void EnterFork(int pipe, int parent);
// The second, in each thread that will run candidate code, the first thread included: a stack for
// the fault handler, and for kLaunch no rdtsc.
void EnterThread(SandboxUse use);
// The third, once for all threads: faults are reported to `pipe`; system calls but those that `use`
// needs end the process by SIGSYS. Heap that allocations can take without one is set aside. A
// kernel without seccomp puts up no such wall; `cudaforge doctor` says so.
void EnterSandbox(SandboxUse use, int pipe);

}  // namespace cudaforge
