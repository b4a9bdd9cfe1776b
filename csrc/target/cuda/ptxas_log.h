// Parses resource usage in the assembler's output (-Xptxas -v) in a compile log.
#pragma once

#include <string_view>

#include "base/json.h"

namespace cudaforge {

// {"kernel": {"registers": 32, "spill_bytes": 0, "stack_bytes": 0, "shared_bytes": 1024}}, for the
// kernels in the log. Skips other text.
Json ParsePtxasLog(std::string_view log);

// Returns the log without the assembler's notes, for the candidate's author.
std::string WithoutPtxasNotes(std::string_view log);

}  // namespace cudaforge
