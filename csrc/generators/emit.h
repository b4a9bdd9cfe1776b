// Kernel text from row programs. The same program and schedule always give the same text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "generators/row_program.h"
#include "kernel/candidate.h"
#include "signature/device_arch.h"

namespace cudaforge::rows {

// How one stage is mapped to the machine; what each field may be depends on the target. Emitters
// list them.
struct Schedule {
  // cuda: "thread" (one thread a row), "warp", "block" (row in registers), "loop" (a block sweeps
  // the row from memory), "shared" (the same with the row in shared memory), "column" (threads
  // along the contiguous outer dimension, several inner parts per block). cpu: "row" (sweep from
  // memory), "buffer" (row kept in a local array), "column" (vectors along the contiguous outer
  // dimension). The cpu's "row" and "buffer" use no other field.
  std::string mapping;
  int threads = 256;  // cuda: per block
  int vector = 1;     // cuda: elements per load; cpu, "column": columns per tile
  int items = 1;  // cuda: vectors per thread kept in registers; cpu, "column": inner steps unrolled
  int rows = 1;   // cuda: rows per block
  bool operator==(const Schedule&) const = default;
  Json ToJson() const;
};

// Schedules worth trying for one stage, best guess first.
std::vector<Schedule> CudaSchedules(const Stage& stage, const DeviceArch& arch);
std::vector<Schedule> CpuSchedules(const Stage& stage, const DeviceArch& arch);

// One kernel per stage; schedules.size() == program.stages.size().
Result<Candidate> EmitCuda(const Program& program, const OpSignature& signature,
                           const std::vector<Schedule>& schedules);
Result<Candidate> EmitCpu(const Program& program, const OpSignature& signature,
                          const std::vector<Schedule>& schedules);

}  // namespace cudaforge::rows
