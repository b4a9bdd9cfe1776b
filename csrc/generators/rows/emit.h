// Kernel text from row programs. Deterministic.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "generators/rows/row_program.h"
#include "kernel/candidate.h"
#include "signature/device_arch.h"

namespace cudaforge::rows {

enum class Mapping {
  kThread,  // cuda: one thread a row
  kWarp,    // cuda: a row in the registers of a warp, or of part of one
  kBlock,   // cuda: a row in the registers of a block
  kLoop,    // cuda: a block sweeps the row from memory
  kShared,  // cuda: the same with the row in shared memory
  // cuda: threads along the contiguous outer dimension, several inner parts per block; cpu: vectors
  // along it
  kColumn,
  kRow,     // cpu: sweep from memory; no other field is used
  kBuffer,  // cpu: row kept in a local array; no other field is used
};
const char* MappingName(Mapping mapping);  // "thread"

// The mapping of one stage to the machine. The valid values depend on the target.
struct Schedule {
  Mapping mapping = Mapping::kThread;
  int threads = 256;  // cuda: per block
  int vector = 1;     // cuda: elements per load; cpu, kColumn: columns per tile
  int items = 1;      // cuda: vectors per thread kept in registers; cpu, kColumn: steps unrolled
  int rows = 1;       // cuda: rows per block
  bool operator==(const Schedule&) const = default;
  // "mapping", and the other fields that are used on that device.
  Json ToJson(DeviceType device) const;
};

// Schedules to try for one stage, best guess first.
std::vector<Schedule> CudaSchedules(const Stage& stage, const DeviceArch& arch);
std::vector<Schedule> CpuSchedules(const Stage& stage, const DeviceArch& arch);

// Returns the launch argument for a buffer.
LaunchArg ArgOf(const BufferRef& buffer);

// One kernel per stage; schedules.size() == program.stages.size().
Result<Candidate> EmitCuda(const Program& program, const OpSignature& signature,
                           const std::vector<Schedule>& schedules);
Result<Candidate> EmitCpu(const Program& program, const OpSignature& signature,
                          const std::vector<Schedule>& schedules);

}  // namespace cudaforge::rows
