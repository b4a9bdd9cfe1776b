// What is computed from a product's sums, as device code.
#pragma once

#include <string>
#include <vector>

#include "generators/tiles/contraction.h"
#include "kernel/candidate.h"

namespace cudaforge::tiles {

struct EpilogueText {
  // struct Epilogue with a pointer for each buffer. Needs rows::CudaPrelude() before it. For V
  // columns of a row from `column`, a multiple of V, all inside the matrix, it has
  //   Inputs<V> Load<V>(batch, row, column): what is read for them, {thin, wide};
  //   Thin<V> LoadThin<V>, Wide<V> LoadWide<V>: its parts. Wide: kWide vectors of halves that differ
  //   from row to row, where V may be 8;
  //   Outputs<V> Compute<V>(batch, row, column, sums, inputs): what is stored;
  //   Put<V>(batch, row, column, outputs): stores it; Store<V>: Compute and Put.
  // kHalfRows: all outputs are of half types and V may be 8 in each.
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
