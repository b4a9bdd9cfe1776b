// Kernels that a Coder writes in Triton. A separate program compiles them ahead of time to PTX,
// which is stored, so that serving needs no Triton.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "kernel/candidate.h"
#include "signature/op_signature.h"

namespace cudaforge {

struct TritonCompiler {
  // The interpreter and python/cudaforge_backend/triton_aot, which documents input and output.
  std::vector<std::string> argv;
  std::string arch;  // "cuda:sm_90a"
  // For one kernel. More than WALL_SECONDS in triton_aot/program.py, so that the program can report
  // its own timeout.
  int timeout_ms = 120'000;
};

// Reads a reply as ParseCoderReply does, with one block of Triton source (triton, python, py, or no
// word), and compiles its kernels. Launches have "kernel", "args" and "grid" as for CUDA C++, and
// "constants" ({"BLOCK": 1024}: every tl.constexpr parameter), "num_warps" (default 4) and
// "num_stages" (default 3). "scratch_types" (default "fp32") are the scratch buffers' types. The
// candidate's source is PTX; params["triton"] keeps {"source", "plan"}. kInvalidArgument, with a
// message for the Coder; kCancelled.
Result<Candidate> ParseTritonReply(std::string_view reply, const OpSignature& signature,
                                   const TritonCompiler& compiler, std::string author,
                                   const Cancel& cancel);

}  // namespace cudaforge
