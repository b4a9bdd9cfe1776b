// Which input numbers a region's operators can take, so that every correct kernel gives the same
// answer.
#pragma once

#include <span>

#include "signature/op_signature.h"
#include "signature/roles.h"

namespace cudaforge {

// Returns true if no correct kernel overflows where ATen does not, for numbers up to 2^90: nothing
// squares them, and products are not combined.
bool BearsFarNumbers(const OpSignature& signature);

// For pointwise regions in which special numbers of several operands should be combined.
struct MeetingBounds {
  bool meets = false;          // the region is of that kind
  bool alone = false;          // one operator computes, the others only move data
  bool bears_largest = false;  // with `alone`: the answer is defined up to the dtype's limits
  int operands = 0;            // inputs that can have any values
};
// Excludes regions where numbers become integers, and operators whose result for NaN or infinities
// depends on the implementation (powers, sines, gradients).
MeetingBounds BoundsOfMeeting(const OpSignature& signature, std::span<const InputRole> roles);

// Returns true if the region only selects numbers along an axis or in windows, or returns their
// indices. Neighbours that differ by one ulp then matter.
bool PicksNumbers(const OpSignature& signature);

// Returns true if an input is a variance, for a norm. `bears_zero`: at least 1e-8 is added to it.
bool IsGivenVariances(const OpSignature& signature, bool* bears_zero);

}  // namespace cudaforge
