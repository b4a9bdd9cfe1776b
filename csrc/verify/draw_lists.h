// Short lists of numbers that are drawn from, so that all pairs of them meet.
#pragma once

#include <cstdint>

#include "verify/draw_kinds.h"

namespace cudaforge {

// For kMeeting. What two operands must not be alone: zeros, infinities, NaN, equal and nearly equal
// numbers, and where the region bears them (DrawnInput) numbers that overflow or become denormal
// together. `shared`: the same for all inputs of a set. REQUIRES: no boolean.
void SetMeetingList(const DrawnInput& input, uint64_t shared, device::DrawnTensor* tensor);

}  // namespace cudaforge
