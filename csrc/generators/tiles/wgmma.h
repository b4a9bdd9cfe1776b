// The instruction of Hopper's tensor cores, as text.
#pragma once

#include <string>

#include "signature/op_signature.h"

namespace cudaforge::tiles {

struct MmaShape {
  int n = 128;  // columns: a multiple of 8, at most 256. Rows are 64, and 16 of k are multiplied
  DType dtype = DType::kFloat16;  // or kBFloat16
  bool a_rows_hold_k = true, b_rows_hold_k = true;
  bool a_in_registers = false;  // then rows of A hold k
};

// A device function: template <int kAdd> void Mma(float (&d)[n / 2], uint64 a, uint64 b), which
// sets d = A B, or adds it if kAdd is 1. `a`, `b`: descriptors (device/wgmma.cuh). Each thread of
// the warpgroup holds sums as the PTX ISA says of wgmma. With A in registers `a` is const unsigned
// (&a)[4], as the PTX ISA says of A's fragments.
std::string MmaText(const MmaShape& shape);

}  // namespace cudaforge::tiles
