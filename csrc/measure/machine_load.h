// Whether other programs use the processors while something is timed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace cudaforge {

// Processor time since the system began, in clock ticks (sysconf(_SC_CLK_TCK) a second and
// processor), of the processors that this process may use.
struct ProcessorTicks {
  int64_t all = 0;
  int64_t idle = 0;  // waiting for a device included
  int64_t own = 0;   // this process's, of all its threads
};

// Of /proc/stat's text (proc(5)), without `own`: the lines of these processors. nullopt: there is
// none.
std::optional<ProcessorTicks> ParseProcessorTicks(const std::string& stat,
                                                  std::span<const int> processors);

// Whether other programs took work's place between two readings: they used more than a twentieth of
// the processors, and less than a seventh was idle. Less than a fifth of a second of all processors
// together says nothing: false.
bool WasDisturbed(const ProcessorTicks& from, const ProcessorTicks& to);

// From its making on. Where /proc cannot be read, nothing is known and nothing disturbed.
class MachineLoad {
 public:
  MachineLoad();
  bool WasDisturbed() const;

 private:
  std::optional<ProcessorTicks> from_;
};

}  // namespace cudaforge
