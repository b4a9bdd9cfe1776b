// Resource facts out of the assembler's words (-Xptxas -v) in a compile log.
#pragma once

#include <string_view>

#include "base/json.h"

namespace cudaforge {

// {"kernel": {"registers": 32, "spill_bytes": 0, "stack_bytes": 0, "shared_bytes": 1024}}. Kernels
// that the log does not name are left out; text that is no assembler output is skipped.
Json ParsePtxasLog(std::string_view log);

// The log without the assembler's notes: what the author of a candidate should read.
std::string WithoutPtxasNotes(std::string_view log);

}  // namespace cudaforge
