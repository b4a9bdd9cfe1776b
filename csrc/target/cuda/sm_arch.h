// The names of GPU architectures: "sm_80", "sm_90a".
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace cudaforge {

// The exact architecture of a device: "sm_90a" for 9.0, "sm_100a" for 10.0, "sm_80" for 8.0. On 9.x
// and 10.x only the "a" form allows some instructions (wgmma, tcgen05).
std::string ArchOf(int major, int minor);

// Returns 90 for "sm_90", "sm_90a" and "sm_90f"; the device need not exist. kInvalidArgument: not
// an architecture.
Result<int> ParseSm(std::string_view arch);

}  // namespace cudaforge
