// Detects whether other programs use the processors during a timing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace cudaforge {

// Processor time since boot, in clock ticks (sysconf(_SC_CLK_TCK) a second and processor), of the
// processors that this process may use.
struct ProcessorTicks {
  int64_t all = 0;
  int64_t idle = 0;  // includes waiting for a device
  int64_t own = 0;   // this process's, all threads
};

// Parses these processors' lines of /proc/stat (proc(5)), without `own`. nullopt: there are none.
std::optional<ProcessorTicks> ParseProcessorTicks(const std::string& stat,
                                                  std::span<const int> processors);

// Returns true if other programs disturbed the work between two readings: they used more than a
// twentieth of the processors, and less than a seventh was idle. Always false for less than a fifth
// of a second of all processors together.
bool WasDisturbed(const ProcessorTicks& from, const ProcessorTicks& to);

// Watches the load from its construction. If /proc is unreadable, reports no disturbance.
class MachineLoad {
 public:
  MachineLoad();
  bool WasDisturbed() const;

 private:
  std::optional<ProcessorTicks> from_;
};

}  // namespace cudaforge
