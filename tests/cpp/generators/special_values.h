// Special values for the tests of this folder.
#pragma once

#include <limits>

namespace cudaforge::rows {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace cudaforge::rows
