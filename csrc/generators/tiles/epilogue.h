// What is computed from a product's sums, as device code.
#pragma once

#include <string>
#include <vector>

#include "generators/tiles/contraction.h"
#include "kernel/candidate.h"

namespace cudaforge::tiles {

// Device code, after rows::CudaPrelude(). struct Epilogue has a pointer for each buffer. Its
// functions are of a place (int batch, int row, int column): V columns of a row from a multiple of
// V, all inside the matrix.
struct EpilogueText {
  // Thin<V> LoadThin<V>(place), Wide<V> LoadWide<V>(place): what is read there. Wide are kWide
  // vectors of halves that differ from row to row, where V may be 8. Inputs<V> Load<V>(place):
  // {thin, wide}. Outputs<V> Compute<V>(place, sums, inputs): what is stored; `sums` is float[V],
  // of two products together float[2][V]. Put<V>(place, outputs): stores it. Store<V>: Compute and
  // Put. kHalfRows: all outputs are of half types, and V may be 8 in each. VisitMatricesRead(place,
  // visit): visit(address) of each of the kMatricesRead values that are of the place alone.
  std::string text;
  // There is a struct Epilogues, too, of products apart: its Of(product) is an Epilogue. Both
  // structs have Of, and One, which is Epilogue.
  bool apart = false;
  bool half_rows = false;                // as kHalfRows
  std::vector<rows::BufferRef> buffers;  // those of the struct's members, product by product
  std::string parameters;                // them in a kernel: "const float* __restrict__ in2, ..."
  std::string arguments;  // "in2, out0", of products apart "{in2, out0}, {in3, out1}"

  // The text of a kernel that has `epilogue` in its body, which is `call`. Its parameters: those in
  // `before`, then the buffers.
  std::string Kernel(const char* name, const char* bounds, const std::string& before,
                     const std::string& call) const;
  // Its arguments: `before`, then the buffers.
  std::vector<LaunchArg> Args(std::vector<LaunchArg> before) const;
};

EpilogueText WriteEpilogueText(const Contraction& contraction);

}  // namespace cudaforge::tiles
