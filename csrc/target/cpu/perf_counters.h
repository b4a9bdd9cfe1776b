// Hardware counters of work on the CPU, by the kernel's perf_event_open.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"

namespace cudaforge {

struct PerfCounters {
  // "cycles", "instructions", "cache_references", "cache_misses" (both of the last level),
  // "branch_misses": in user mode, of one call, summed over the threads.
  Json metrics = Json::object();
  std::string note;  // what was refused, and why; empty: nothing
};

// Opens a counter of hardware event `event` (PERF_COUNT_HW_...) for one thread, switched off.
// kNotFound: the thread has ended; kUnavailable: the kernel refuses; kUnsupported: the processor
// shows no such event.
using OpenPerfCounter = std::function<Result<UniqueFd>(uint64_t event, pid_t thread)>;
Result<UniqueFd> OpenHardwareCounter(uint64_t event, pid_t thread);

// Calls prepare() and then work() once for each event, so that no event ever shares a counter with
// another, and counts in all threads that this process has at that moment: the pool's are long
// running, and the kernel's `inherit` would only reach threads that start later. A thread that
// spins while it waits for its part counts with what it spins. An error is that of prepare() or
// work(); what the kernel refuses is a note.
Result<PerfCounters> CountPerf(const std::function<Status()>& prepare,
                               const std::function<Status()>& work,
                               const OpenPerfCounter& open = OpenHardwareCounter);

// Names of those events that this thread may count: each is opened once. Where there is none, the
// last refusal.
Result<std::vector<std::string>> PerfEvents(const OpenPerfCounter& open = OpenHardwareCounter);

}  // namespace cudaforge
