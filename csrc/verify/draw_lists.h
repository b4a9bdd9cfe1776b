// Short lists of numbers to draw from, so that all pairs occur.
#pragma once

#include <cstdint>

#include "verify/draw_kinds.h"

namespace cudaforge {

// For kMeeting: zeros, infinities, NaN, equal and nearly equal numbers. Also pairs that overflow or
// become denormal, if the region can take them (DrawnInput). `shared`: the same for all inputs of a
// set. REQUIRES: no boolean.
void SetMeetingList(const DrawnInput& input, uint64_t shared, device::DrawnTensor* tensor);

}  // namespace cudaforge
