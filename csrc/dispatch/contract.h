// InputContract: a signature's inputs as flat compares, for the hot path.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

#include "signature/op_signature.h"

namespace cudaforge {

class InputContract {
 public:
  enum class Fit {
    kYes,
    kStrides,  // the region still computes the right thing, by ATen
    kDevice,   // so it does here, if ATen takes these devices together
    kShape,    // another dtype, size or number of inputs: not this region's call
  };

  InputContract() = default;
  // `device_index` counts for CUDA only.
  InputContract(const OpSignature& signature, int device_index);

  // The worst of the inputs' fits. REQUIRES: every element is a defined strided tensor. No
  // allocation.
  Fit Check(c10::ArrayRef<c10::IValue> inputs) const;
  // What of `inputs` is not as the signature says, for an error message.
  std::string Explain(c10::ArrayRef<c10::IValue> inputs) const;
  c10::Device device() const { return device_; }

 private:
  struct Input {
    at::ScalarType dtype;
    int32_t dims;
    size_t offset;  // of its sizes in numbers_; its strides follow them
    bool empty;     // strides do not matter
  };
  c10::Device device_{at::kCPU};
  std::vector<Input> inputs_;
  std::vector<int64_t> numbers_;
};

}  // namespace cudaforge
