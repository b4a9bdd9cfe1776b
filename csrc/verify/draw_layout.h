// Which elements of an input a region takes together, and how an input's memory is walked when it
// is drawn.
#pragma once

#include <cstdint>
#include <vector>

#include "signature/op_signature.h"
#include "verify/device/drawn_tensor.h"

namespace cudaforge {

// Whether the region has an any(), an all() or an output of booleans.
bool DecidesTruths(const OpSignature& signature);
// 1 where all that the region reduces it reduces by maxima (softmax and logsumexp are such), -1
// where by minima, else 0: sums and the like cannot take numbers so far out. Also 0 where another
// operation stands beside them that is not known to be harmless with such numbers.
int DecidesExtremes(const OpSignature& signature);
// The input whose values decide: the largest of the floating ones; without any, the largest.
// REQUIRES: an input.
size_t LargestInput(const OpSignature& signature);

// Whom the groups of an input are for.
enum class GroupPurpose {
  kTruths,    // what any() and all() take together
  kExtremes,  // what maxima and minima take together
  kAll,       // what any reduction, scan, norm or product takes together
};
// By dimension of input `i`, how many neighbours are of one group: where such an operation of the
// region takes a tensor of the input's sizes, its own (of a pooling, whole planes); else rows. Of
// kAll, all is one group where all outputs are single numbers. Dimensions of stride 0 count 1.
std::vector<int64_t> TakenTogether(const OpSignature& signature, size_t i, GroupPurpose groups);

// The places, groups and rows of `spec`, in all fields of the result that are about them: groups of
// fewer than 16 are cut into rows. Memory in which two positions have one offset is taken as one
// group, in the order of addresses.
device::DrawnTensor LayOut(const TensorSpec& spec, const std::vector<int64_t>& together);

// REQUIRES: value > 0.
device::Divisor DivisorOf(int64_t value);

}  // namespace cudaforge
