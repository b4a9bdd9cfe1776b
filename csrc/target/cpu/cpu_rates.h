// Measured rates of this processor, with the worker's threads and loops that the host compiler
// makes with the options of candidates. docs/messages.md says how each is measured, within a
// quarter of a second.
#pragma once

#include <string>

#include "base/json.h"

namespace cudaforge {

// {"bandwidth_gb_s",...,"note"}: unmeasurable rates (no compiler, no memory) are missing, and
// "note" says why. `wanted_cxx` as in CpuTargetOptions.
Json MeasureCpuRates(const std::string& wanted_cxx);

}  // namespace cudaforge
