// One run of a loaded candidate on buffers of its own, each between guard regions. Torch-free; used
// inside the worker.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "kernel/candidate.h"
#include "kernel/verdict.h"
#include "signature/op_signature.h"
#include "target/target.h"
#include "worker/run_plan.h"
#include "worker/timing_plan.h"

namespace cudaforge {

struct GuardedRunRequest {
  const Candidate* candidate = nullptr;
  const OpSignature* signature = nullptr;
  std::span<const std::string_view> inputs;  // StorageBytes() of each; unchanged during the run
  // Bytes after a multiple of 256; raised where a constraint asks for more.
  std::span<const int64_t> shifts;
  RunPlan plan;
  uint64_t guard_seed = 0;
  // Where the outputs go, StorageBytes() of each, when the verdict is accepted; else untouched.
  // Timing and profiling need none.
  std::span<char* const> outputs;
};

struct GuardedRunResult {
  Verdict verdict;
  bool device_error = false;  // the device or its context may be unusable from now on
};

// Guards on each side hold one row of the tensor, but at least 128 KiB and at most 1 MiB; no two
// buffers have the same bytes there. On the side of a fence (RunPlan) there is none, or as much as
// alignment leaves; with Fence::kAfter inputs are placed by their alignment, not by `shifts`. An
// error is not the candidate's fault (no memory).
Result<GuardedRunResult> RunGuarded(Target& target, const Executable& executable,
                                    const GuardedRunRequest& request);

// The median nanoseconds of cold runs, buffers without guards.
Result<double> TimeRuns(Target& target, const Executable& executable,
                        const GuardedRunRequest& request, const TimingPlan& plan);

// Target::Profile of the candidate, on buffers of its own without guards, as TimeRuns makes them.
// They stay as they are between its runs: inputs intact, as the candidate has been verified,
// outputs and scratch as the run before left them.
Result<Json> ProfileRuns(Target& target, const Executable& executable,
                         const GuardedRunRequest& request, int tier);

}  // namespace cudaforge
