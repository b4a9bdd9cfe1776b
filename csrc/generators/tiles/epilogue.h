// What is computed from a product's sums, as device code.
#pragma once

#include <string>
#include <vector>

#include "generators/tiles/contraction.h"
#include "kernel/candidate.h"

namespace cudaforge::tiles {

struct EpilogueText {
  // struct Epilogue with a pointer for each buffer, and for V columns of a row, which are inside
  // the matrix, the first a multiple of V: Inputs<V> Load<V>(int batch, int row, int column): what
  // is read for them void Store<V>(int batch, int row, int column, const float (&sums)[V], const
  // Inputs<V>&): stores all outputs. Needs rows::CudaPrelude() before it.
  std::string text;
  std::vector<rows::BufferRef> buffers;  // in the order of the struct's members
  std::string
      parameters;         // the same as a kernel's parameters: "const float* __restrict__ in2, ..."
  std::string arguments;  // "in2, out0"

  // The text of a kernel that has `epilogue` in its body, which is `call`. Its parameters: those in
  // `before`, then the buffers.
  std::string Kernel(const char* name, const char* bounds, const std::string& before,
                     const std::string& call) const;
  // Its arguments: `before`, then the buffers.
  std::vector<LaunchArg> Args(std::vector<LaunchArg> before) const;
};

EpilogueText WriteEpilogueText(const Contraction& contraction);

}  // namespace cudaforge::tiles
