// What PTX may not do in a kernel that is to be proven: what a kernel can see of its surroundings,
// or remember, may make it right in the verifier alone.
#pragma once

#include <string_view>

#include "base/status.h"

namespace cudaforge {

// kInvalidArgument for
// - special registers other than those of threads, blocks, clusters, lanes and the size of shared
//   memory: clocks, timers, multiprocessors, grids and counters among them;
// - nanosleep, and brkpt, which can stop a GPU for every program on it;
// - variables of the .global space that are written to, or whose address leaves the function that
//   takes it: they outlive a launch. Tables that are only read are let through;
// - tables that are initialised with addresses;
// - functions that are declared and not defined: malloc, printf.
// Follows addresses through registers, whatever the order of instructions. Linear in the text but
// for loops of copies among registers. Safe for hostile text.
Status AuditPtx(std::string_view ptx);

}  // namespace cudaforge
