// InputContract: a signature's inputs as flat comparisons, for the hot path.
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
    kStrides,  // another layout: ATen still computes the region correctly
    kDevice,   // another device: ATen computes the region if it accepts these devices
    kShape,    // another dtype, size or number of inputs: the region does not apply
  };

  InputContract() = default;
  // `device_index` is compared for CUDA only.
  InputContract(const OpSignature& signature, int device_index);

  // Returns the worst fit of all inputs. Does not allocate. REQUIRES: every element is a defined
  // strided tensor.
  Fit Check(c10::ArrayRef<c10::IValue> inputs) const;
  // Returns how `inputs` differ from the signature, for an error message.
  std::string Explain(c10::ArrayRef<c10::IValue> inputs) const;
  c10::Device device() const { return device_; }

 private:
  struct Input {
    at::ScalarType dtype;
    int32_t dims;
    size_t offset;  // where its sizes start in numbers_; its strides follow them
    bool empty;     // strides do not matter
  };
  c10::Device device_{at::kCPU};
  std::vector<Input> inputs_;
  std::vector<int64_t> numbers_;
};

}  // namespace cudaforge
