// Describes a region in words for agents, and classifies it.
#pragma once

#include <string>

#include "signature/op_signature.h"

namespace cudaforge {

// Describes everything needed to write a kernel: the inputs (dtype, sizes, strides, alignment,
// bytes, shared storage), the ATen calls in order, the outputs and the numerics settings. Lines of
// text; deterministic.
std::string DescribeRegion(const OpSignature& signature);

// Returns the heaviest kind among the region's calls: "attention", "convolution", "matmul",
// "pooling", "loss", "scan", "softmax", "norm", "reduction", in this order, else "other".
std::string RegionKind(const OpSignature& signature);

}  // namespace cudaforge
