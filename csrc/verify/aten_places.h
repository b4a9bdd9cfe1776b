// Checks indices of sorted numbers, where equal numbers may come in any order.
#pragma once

#include <cstdint>
#include <span>

#include "signature/aten_pch.h"
#include "signature/op_signature.h"

namespace cudaforge {

// Returns true if `candidate`'s indices are as correct as ATen's: each refers to a number equal to
// the one at ATen's index (any NaN equals any), and no index is repeated along the dimension. False
// for other outputs, stable sorts, and computed operands. Tensors on one device, of the output's
// sizes; `candidate` may hold any integers. Works on 2^22 elements or one row at a time. Throws
// ATen's errors.
bool ArePlacesOfEquals(const OpSignature& signature, size_t output,
                       std::span<const at::Tensor> inputs, const at::Tensor& aten,
                       const at::Tensor& candidate);

}  // namespace cudaforge
