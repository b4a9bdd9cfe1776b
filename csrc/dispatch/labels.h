// Class labels out of range: PyTorch raises an error of them on a CPU, a kernel cannot.
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
  int64_t ignore;  // a label that is none
};

// Those of a region on a CPU. None of a region on a GPU, where looking at them would wait for it.
std::vector<LabelInput> FindLabels(const OpSignature& signature);

// Whether every label is in [0, limit), or `ignore`. `labels`: strided, on the CPU. Allocates
// nothing.
bool AreInRange(const at::Tensor& labels, const LabelInput& input);

}  // namespace cudaforge
