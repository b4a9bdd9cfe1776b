// Which elements of an input a region reduces together, and the order in which an input's memory is
// drawn.
#pragma once

#include <cstdint>
#include <vector>

#include "signature/op_signature.h"
#include "verify/device/drawn_tensor.h"

namespace cudaforge {

// Whether the region has an any(), an all() or an output of booleans.
bool DecidesTruths(const OpSignature& signature);
// Returns 1 if the region reduces only by maxima (including softmax and logsumexp), -1 if only by
// minima, else 0. Sums cannot take extreme numbers. Also 0 if another operation may not take
// them.
int DecidesExtremes(const OpSignature& signature);
// The input that determines the result: the largest floating one; without any, the largest.
// REQUIRES: an input.
size_t LargestInput(const OpSignature& signature);

// The operators that groups of an input are for.
enum class GroupPurpose {
  kTruths,    // what any() and all() reduce
  kExtremes,  // what maxima and minima reduce
  kAll,       // what any reduction, scan, norm or product reduces
};
// Returns, by dimension of input `i`, how many neighbours form a group: those that an operation of
// this purpose reduces in a tensor of the input's sizes (of a pooling, whole planes), else rows.
// kAll: one group if all outputs are single numbers. Dimensions of stride 0 count 1.
std::vector<int64_t> TakenTogether(const OpSignature& signature, size_t i, GroupPurpose groups);

// The places, groups and rows of `spec`, in the result's layout fields. Groups of fewer than 16 are
// cut into rows. Overlapping memory is one group, in the order of addresses.
device::DrawnTensor LayOut(const TensorSpec& spec, const std::vector<int64_t>& together);

// REQUIRES: value > 0.
device::Divisor DivisorOf(int64_t value);

}  // namespace cudaforge
