// Kernels that a Coder writes in Triton. A program of its own compiles them ahead of time; what is
// kept, proven and served is the PTX, so that a machine which serves them needs no Triton.
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
  // The interpreter and python/cudaforge_backend/triton_aot, which says what goes in and comes out.
  std::vector<std::string> argv;
  std::string arch;  // "cuda:sm_90a"
  // Of one kernel. More than WALL_SECONDS in triton_aot/program.py, which says what took long.
  int timeout_ms = 120'000;
};

// Reads the reply of a Coder as ParseCoderReply does, with one block of Triton source (triton,
// python, py, or no word), and compiles its kernels. The plan's launches have "kernel", "args" and
// "grid" as for CUDA C++, and "constants" ({"BLOCK": 1024}: every tl.constexpr parameter),
// "num_warps" (else 4) and "num_stages" (else 3); "scratch_types" ("fp32" each unless said) names
// what the scratch buffers hold. The candidate's source is PTX, and params["triton"] is {"source",
// "plan"} as they were written. Errors: kInvalidArgument, with words for the Coder; kCancelled.
Result<Candidate> ParseTritonReply(std::string_view reply, const OpSignature& signature,
                                   const TritonCompiler& compiler, std::string author,
                                   const Cancel& cancel);

}  // namespace cudaforge
