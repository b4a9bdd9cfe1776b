// The project's device code (csrc/generators/device) for agents' CUDA kernels.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace cudaforge {

// Replaces each line `#include "device/NAME.cuh"` of CUDA source by that file's text, the first
// time it comes; later ones are removed. So a candidate's source stands alone. kInvalidArgument: no
// such file; lists those that there are.
Result<std::string> WithDeviceCode(std::string_view source);

}  // namespace cudaforge
