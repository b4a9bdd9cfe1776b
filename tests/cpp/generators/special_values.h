// The special values that the tests of this folder feed and expect.
#pragma once

#include <limits>

namespace cudaforge::rows {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace cudaforge::rows
