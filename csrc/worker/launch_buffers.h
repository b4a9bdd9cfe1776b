// The buffers of a LaunchRequest as addresses, and the verdicts on runs with them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kernel/verdict.h"
#include "signature/op_signature.h"
#include "target/device_buffer.h"
#include "worker/forked_run.h"
#include "worker/launch.h"

namespace cudaforge {

struct Mapping {
  DeviceBuffer buffer;
  bool writable = false;
};
using Mappings = std::map<int, Mapping>;

// One buffer of a launch, and its mapping.
struct LaunchBuffer {
  std::string name;  // "input 0", "output 0", "scratch buffer 0", "prepared buffer 0"
  bool is_input = false;
  bool is_scratch = false;
  bool is_prepared = false;
  int mapping_id = 0;
  const Mapping* mapping = nullptr;
  void* data = nullptr;
  int64_t bytes = 0;
};

struct LaunchBuffers {
  std::vector<LaunchBuffer> all;  // inputs, outputs, scratch
  std::vector<void*> inputs, outputs, scratch;
};

// kInvalidArgument: another number of buffers than the kernel has, no such mapping, a buffer
// outside its mapping, or one in a read-only mapping that the launch writes. `prepared`: the number
// of prepared buffers, the last of `scratch_bytes`.
Result<LaunchBuffers> FindBuffers(const LaunchRequest& launch, const OpSignature& signature,
                                  std::span<const int64_t> scratch_bytes, size_t prepared,
                                  const Mappings& mappings);

// The verdict for a fault, if the report is honest: memory_fault, modified_input, or refused for
// reading the clock. Evidence if a buffer is near: {"buffer","access" ("read" or
// "write"),"before_bytes" or "after_bytes" (1: the byte next to the buffer) or "byte" (within it)}.
Verdict VerdictOfFault(const FaultReport& fault, const LaunchBuffers& buffers);
// The verdict for a launch in its own process. Accepted only if it answered {"ok":true}. REQUIRES:
// not kKilled, which is not about the candidate.
Verdict VerdictOfEnd(const ForkedEnd& end, const LaunchBuffers& buffers, int timeout_ms);
// The verdict for a launch that returned.
Verdict VerdictOfLaunch(const Status& launched);

}  // namespace cudaforge
