// Checks class labels. On a CPU, PyTorch raises an error for labels out of range; a kernel cannot.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "signature/op_signature.h"

namespace cudaforge {

// An input of a region whose elements are class labels.
struct LabelInput {
  size_t index;    // among the inputs
  int64_t limit;   // the number of classes
  int64_t ignore;  // ignore_index: allowed, though not a class
};

// Returns the label inputs of a region on a CPU. Empty for a GPU, where reading labels would
// synchronise.
std::vector<LabelInput> FindLabels(const OpSignature& signature);

// Returns true if every label is in [0, limit) or is `ignore`. `labels`: strided, on the CPU. Does
// not allocate.
bool AreInRange(const at::Tensor& labels, const LabelInput& input);

}  // namespace cudaforge
