#include "measure/machine_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "target/cpu/cpu_info.h"

namespace cudaforge {
namespace {

// user nice system idle iowait irq softirq steal; user includes guests.
constexpr size_t kFields = 8;
constexpr size_t kIdle = 3, kWaiting = 4;
constexpr double kLeastSeconds = 0.2;
constexpr int64_t kOthersPart = 20, kIdlePart = 7;

int64_t TicksOf(const timeval& time) {
  const int64_t a_second = sysconf(_SC_CLK_TCK);
  return time.tv_sec * a_second + time.tv_usec * a_second / 1'000'000;
}

std::optional<ProcessorTicks> Read() {
  const Result<std::string> stat = ReadFile("/proc/stat");
  if (!stat.ok()) return std::nullopt;
  std::optional<ProcessorTicks> ticks = ParseProcessorTicks(*stat, AllowedCpus());
  rusage usage{};
  if (!ticks.has_value() || getrusage(RUSAGE_SELF, &usage) != 0) return std::nullopt;
  ticks->own = TicksOf(usage.ru_utime) + TicksOf(usage.ru_stime);
  return ticks;
}

}  // namespace

std::optional<ProcessorTicks> ParseProcessorTicks(const std::string& stat,
                                                  std::span<const int> processors) {
  std::optional<ProcessorTicks> sum;
  for (const std::string_view line : Split(stat, '\n')) {
    const std::vector<std::string_view> words = Split(line, ' ');  // "cpu3 1184 17 ..."
    if (words.empty() || !words[0].starts_with("cpu")) continue;
    const std::optional<int> processor = ParseInteger<int>(words[0].substr(3));
    if (!processor.has_value() || std::ranges::count(processors, *processor) == 0) continue;
    if (!sum.has_value()) sum.emplace();
    for (size_t field = 0; field < kFields && field + 1 < words.size(); ++field) {
      const auto ticks = ParseInteger<int64_t>(words[field + 1]).value_or(0);
      sum->all += ticks;
      if (field == kIdle || field == kWaiting) sum->idle += ticks;
    }
  }
  return sum;
}

bool WasDisturbed(const ProcessorTicks& from, const ProcessorTicks& to) {
  const int64_t all = to.all - from.all;
  const int64_t idle = to.idle - from.idle;
  const int64_t others = all - idle - (to.own - from.own);
  const auto least =
      static_cast<int64_t>(kLeastSeconds * static_cast<double>(sysconf(_SC_CLK_TCK)));
  return all >= least && others * kOthersPart > all && idle * kIdlePart < all;
}

MachineLoad::MachineLoad() : from_(Read()) {}

bool MachineLoad::WasDisturbed() const {
  if (!from_.has_value()) return false;
  const std::optional<ProcessorTicks> now = Read();
  return now.has_value() && cudaforge::WasDisturbed(*from_, *now);
}

}  // namespace cudaforge
