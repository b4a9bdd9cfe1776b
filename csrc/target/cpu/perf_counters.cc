#include "target/cpu/perf_counters.h"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace cudaforge {
namespace {

constexpr std::pair<const char*, uint64_t> kEvents[] = {
    {"cycles", PERF_COUNT_HW_CPU_CYCLES},
    {"instructions", PERF_COUNT_HW_INSTRUCTIONS},
    {"cache_references", PERF_COUNT_HW_CACHE_REFERENCES},
    {"cache_misses", PERF_COUNT_HW_CACHE_MISSES},
    {"branch_misses", PERF_COUNT_HW_BRANCH_MISSES},
};

// The data of read() on a counter.
struct Reading {
  uint64_t value = 0;
  uint64_t enabled_ns = 0;  // while the thread ran
  uint64_t running_ns = 0;  // while the event was also on a counter
};

std::vector<pid_t> Threads() {
  std::vector<pid_t> threads;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error)) {
    const std::string name = entry.path().filename();
    pid_t thread = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), thread);
    if (parsed.ec == std::errc() && thread > 0) threads.push_back(thread);
  }
  return threads;
}

// The event's count over all threads, during one call of `work`; an error if it is refused.
Result<double> CountEvent(uint64_t event, const std::function<Status()>& work,
                          const OpenPerfCounter& open, Status* failed) {
  std::vector<UniqueFd> counters;
  for (const pid_t thread : Threads()) {
    Result<UniqueFd> counter = open(event, thread);
    if (counter.status().code() == StatusCode::kNotFound) continue;  // the thread has ended
    if (!counter.ok()) return counter.status();
    counters.push_back(*std::move(counter));
  }
  for (const UniqueFd& counter : counters) ioctl(counter.get(), PERF_EVENT_IOC_ENABLE, 0);
  *failed = work();
  for (const UniqueFd& counter : counters) ioctl(counter.get(), PERF_EVENT_IOC_DISABLE, 0);
  double total = 0;
  for (const UniqueFd& counter : counters) {
    Reading reading;
    if (read(counter.get(), &reading, sizeof(reading)) != sizeof(reading)) {
      return Status::Unavailable("a counter cannot be read");
    }
    if (reading.enabled_ns == 0) continue;  // the thread slept
    if (reading.running_ns == 0) return Status::Unavailable("other programs hold the counters");
    total += static_cast<double>(reading.value) * static_cast<double>(reading.enabled_ns) /
             static_cast<double>(reading.running_ns);
  }
  return total;
}

}  // namespace

Result<UniqueFd> OpenHardwareCounter(uint64_t event, pid_t thread) {
  perf_event_attr attributes;
  std::memset(&attributes, 0, sizeof(attributes));
  attributes.size = sizeof(attributes);
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.config = event;
  attributes.disabled = 1;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  const int64_t fd = syscall(SYS_perf_event_open, &attributes, thread, /*cpu=*/-1, /*group=*/-1,
                             PERF_FLAG_FD_CLOEXEC);
  if (fd >= 0) return UniqueFd(static_cast<int>(fd));
  const std::string why = std::generic_category().message(errno);
  switch (errno) {
    case ESRCH:
      return Status::NotFound(why);
    case EACCES:
    case EPERM:
    case ENOSYS:
      return Status::Unavailable("perf_event_open: " + why +
                                 "; kernel.perf_event_paranoid and the container's seccomp filter "
                                 "decide");
    default:  // ENOENT, EOPNOTSUPP: virtual machines without the counter
      return Status::Unsupported("perf_event_open: " + why + "; this processor has none");
  }
}

Result<PerfCounters> CountPerf(const std::function<Status()>& prepare,
                               const std::function<Status()>& work, const OpenPerfCounter& open) {
  PerfCounters counters;
  std::string missing;
  Status refusal;
  for (const auto& [name, event] : kEvents) {
    CF_RETURN_IF_ERROR(prepare());
    Status failed;
    const Result<double> count = CountEvent(event, work, open, &failed);
    CF_RETURN_IF_ERROR(failed);
    if (count.ok()) {
      counters.metrics[name] = *count;
      continue;
    }
    refusal = count.status();
    missing += (missing.empty() ? "" : ", ") + std::string(name);
  }
  if (counters.metrics.empty()) {
    counters.note = "no hardware counters: " + refusal.message();
  } else if (!missing.empty()) {
    counters.note = "no " + missing + ": " + refusal.message();
  }
  return counters;
}

Result<std::vector<std::string>> PerfEvents(const OpenPerfCounter& open) {
  std::vector<std::string> names;
  Status refusal;
  for (const auto& [name, event] : kEvents) {
    const Result<UniqueFd> counter = open(event, /*thread=*/0);
    if (counter.ok()) {
      names.emplace_back(name);
    } else {
      refusal = counter.status();
    }
  }
  if (names.empty()) return refusal;
  return names;
}

}  // namespace cudaforge
