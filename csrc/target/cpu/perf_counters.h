// Hardware counters of work on the CPU, by perf_event_open.
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
  // "branch_misses": in user mode, of one call, summed over threads.
  Json metrics = Json::object();
  std::string note;  // what was refused, and why; empty: nothing was
};

// Opens a disabled counter of hardware event `event` (PERF_COUNT_HW_...) for one thread. kNotFound:
// the thread has ended; kUnavailable: the kernel refuses; kUnsupported: the processor has no such
// event.
using OpenPerfCounter = std::function<Result<UniqueFd>(uint64_t event, pid_t thread)>;
Result<UniqueFd> OpenHardwareCounter(uint64_t event, pid_t thread);

// Calls prepare() and then work() once for each event, so that events never share a counter. Counts
// in all existing threads, because `inherit` only covers threads that start later. A thread's
// spinning while it waits is counted too. Errors are those of prepare() or work(); refusals of the
// kernel are a note.
Result<PerfCounters> CountPerf(const std::function<Status()>& prepare,
                               const std::function<Status()>& work,
                               const OpenPerfCounter& open = OpenHardwareCounter);

// Returns the names of the events that this thread may count; opens each once. If there are none,
// returns the last refusal.
Result<std::vector<std::string>> PerfEvents(const OpenPerfCounter& open = OpenHardwareCounter);

}  // namespace cudaforge
