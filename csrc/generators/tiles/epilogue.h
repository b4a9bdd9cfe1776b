// What is computed from a product's sums, as device code.
#pragma once

#include <string>
#include <vector>

#include "generators/tiles/contraction.h"

namespace cudaforge::tiles {

struct EpilogueText {
  // struct Epilogue with a pointer for each buffer, and
  //   template <int V> void Store(int batch, int row, int column, const float (&sums)[V]) const
  // which stores all outputs at columns column .. column + V - 1 of a row. They must be inside the
  // matrix, and `column` a multiple of V. Needs rows::CudaPrelude() before it.
  std::string text;
  std::vector<rows::BufferRef> buffers;  // in the order of the struct's members
  std::string
      parameters;         // the same as a kernel's parameters: "const float* __restrict__ in2, ..."
  std::string arguments;  // "in2, out0"
};

EpilogueText WriteEpilogueText(const Contraction& contraction);

}  // namespace cudaforge::tiles
