// Checks PTX for a proof. A kernel that can observe its surroundings or keep state might be correct
// only in the verifier.
#pragma once

#include <string_view>

#include "base/status.h"

namespace cudaforge {

// kInvalidArgument for special registers other than those of threads, blocks, clusters, lanes and
// the size of shared memory (so no clocks, multiprocessors, counters); nanosleep; brkpt, which can
// stop a GPU for every program; functions without a definition (malloc, printf); tables initialised
// with addresses; variables of .global that are written, or whose address leaves the function: they
// outlive a launch (read-only tables are allowed). Follows addresses through registers in any order
// of instructions. Linear time, except for loops of register copies. Safe for hostile text.
Status AuditPtx(std::string_view ptx);

}  // namespace cudaforge
