// One run of a loaded candidate on buffers of its own, each between guard regions. Torch-free; used
// inside the worker.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernel/candidate.h"
#include "signature/op_signature.h"
#include "target/target.h"
#include "verify/verdict.h"

namespace cudaforge {

struct GuardedRunRequest {
  const Candidate* candidate = nullptr;
  const OpSignature* signature = nullptr;
  std::span<const std::string> inputs;  // StorageBytes() of each
  std::span<const int64_t>
      shifts;             // bytes after a multiple of 256; raised where a constraint asks for more
  uint8_t poison = 0xff;  // what outputs and scratch hold before the run
  uint64_t guard_seed = 0;
};

struct GuardedRunResult {
  Verdict verdict;
  std::vector<std::string> outputs;  // StorageBytes() of each, when the verdict is accepted
  bool device_error = false;         // the device or its context may be unusable from now on
};

// Guards are 128 KiB on each side, and at least one row of the tensor. An error is not the
// candidate's fault (no memory).
Result<GuardedRunResult> RunGuarded(Target& target, const Executable& executable,
                                    const GuardedRunRequest& request);

// The median nanoseconds of `samples` cold runs, buffers without guards.
Result<double> TimeRuns(Target& target, const Executable& executable,
                        const GuardedRunRequest& request, int samples);

}  // namespace cudaforge
