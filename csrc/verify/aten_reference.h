// Runs one region on one set of inputs, for ATen's answers and the fp64 oracle's.
#pragma once

#include <string>
#include <vector>

#include "signature/aten_pch.h"
#include "signature/from_aten_region.h"
#include "worker/input_set.h"

namespace cudaforge {

// Its functions throw what ATen throws. Thread-safe.
class AtenReference {
 public:
  // REQUIRES: program outlives the reference.
  AtenReference(const RegionProgram& program, at::Device device)
      : program_(program), device_(device) {}

  // The inputs of a set on the device, in the signature's strides.
  std::vector<at::Tensor> Inputs(const InputSet& set) const;
  // ATen's outputs: their storage bytes, in the signature's strides.
  std::vector<std::string> Aten(const std::vector<at::Tensor>& inputs) const;
  // The oracle's row-major doubles of the floating outputs; empty vectors for the others.
  std::vector<std::vector<double>> Oracle(const std::vector<at::Tensor>& inputs) const;
  // Inputs each of whose floating numbers is moved up or down by a rounding unit: float64, in any
  // strides. `inputs`: those of `set`.
  std::vector<at::Tensor> PerturbedInputs(const InputSet& set,
                                          const std::vector<at::Tensor>& inputs,
                                          uint64_t seed) const;

 private:
  const RegionProgram& program_;
  at::Device device_;
};

}  // namespace cudaforge
