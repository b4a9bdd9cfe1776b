// The names of GPU architectures: "sm_80", "sm_90a".
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace cudaforge {

// The exact architecture of a device: "sm_90a" for 9.0, "sm_100a" for 10.0, "sm_80" for 8.0.
// Devices of compute capability 9.x and 10.x have instructions (wgmma, tcgen05) that only the "a"
// form may use.
std::string ArchOf(int major, int minor);

// 90 of "sm_90", "sm_90a" and "sm_90f", of devices that do not exist too. kInvalidArgument when the
// text is no architecture.
Result<int> ParseSm(std::string_view arch);

}  // namespace cudaforge
