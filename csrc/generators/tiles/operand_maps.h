// Tensor maps by which tiles of operands are copied: 128 bytes a row, with the 128-byte swizzle.
#pragma once

#include "base/status.h"
#include "generators/tiles/contraction.h"
#include "kernel/candidate.h"

namespace cudaforge::tiles {

// kUnsupported: rows in memory do not begin at 16 bytes. what: "an operand".
Status CheckMap(const Operand& operand, const char* what);

// Of the input with that number, which has the strides of `operand`: `all_rows` rows of A, or
// columns of B, of k elements, in `batch` matrices. A box is a piece of 128 bytes along the rows'
// memory: of `rows` rows if rows hold k; else it has 64 of k of as many rows as 128 bytes hold.
TensorMap MapOf(int input, const Operand& operand, int64_t all_rows, int64_t k, int64_t batch,
                int64_t rows);

}  // namespace cudaforge::tiles
