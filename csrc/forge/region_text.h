// A region in words: what agents read of it, and which kind of work it is.
#pragma once

#include <string>

#include "signature/op_signature.h"

namespace cudaforge {

// Everything that a kernel for the region is written from: the inputs (dtype, sizes, strides,
// alignment, bytes, shared storage), the ATen calls in order, the outputs and the numerics in
// force. Lines of text; the same signature always gives the same text.
std::string DescribeRegion(const OpSignature& signature);

// The heaviest kind among the region's calls: "attention", "convolution", "matmul", "pooling",
// "loss", "scan", "softmax", "norm", "reduction", in this order of precedence, else "other".
std::string RegionKind(const OpSignature& signature);

}  // namespace cudaforge
