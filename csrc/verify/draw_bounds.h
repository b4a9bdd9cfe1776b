// What numbers the operators of a region bear, so that every right kernel gives one answer.
#pragma once

#include <span>

#include "signature/op_signature.h"
#include "signature/roles.h"

namespace cudaforge {

// Whether no right kernel overflows where ATen does not, given numbers of up to 2^90: nothing
// squares them, and products stand alone.
bool BearsFarNumbers(const OpSignature& signature);

// Of pointwise regions, where special numbers of several operands are to meet.
struct MeetingBounds {
  bool meets = false;          // the region is such a one
  bool alone = false;          // one operator computes, the others move its operands or result
  bool bears_largest = false;  // alone, and one answer is right at the ends of the dtype
  int operands = 0;            // inputs that are any numbers
};
// Not where numbers become integers, or where an operator's answer to NaN or infinities depends on
// how it is written (powers, sines, gradients).
MeetingBounds BoundsOfMeeting(const OpSignature& signature, std::span<const InputRole> roles);

// Whether all that is done is to pick numbers along an axis or in windows, or to give their places:
// then which of two neighbours is larger decides, and nothing is rounded before.
bool PicksNumbers(const OpSignature& signature);

// Whether a variance is given to it, by a norm. `bears_zero`: at least 1e-8 is added to it.
bool IsGivenVariances(const OpSignature& signature, bool* bears_zero);

}  // namespace cudaforge
