// Places of sorted numbers, where equal ones may come in any order.
#pragma once

#include <cstdint>
#include <span>

#include "signature/aten_pch.h"
#include "signature/op_signature.h"

namespace cudaforge {

// Whether these places are as right as ATen's: each names a number equal to the one that ATen's
// names there (any NaN equals any), and none comes twice along the dimension. False of outputs that
// are no such places, of a sort that is stable, and of a region whose operand is computed.
// Tensors on one device, `aten` and `candidate` of the output's sizes; any integers may be in the
// latter. Works on at most 2^22 elements at a time, or on one row. Errors of ATen as exceptions.
bool ArePlacesOfEquals(const OpSignature& signature, size_t output,
                       std::span<const at::Tensor> inputs, const at::Tensor& aten,
                       const at::Tensor& candidate);

}  // namespace cudaforge
