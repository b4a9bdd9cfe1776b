// A region around one matrix product, or several with one left operand: what is multiplied, and
// what is computed from each sum.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "generators/rows/row_program.h"
#include "signature/op_signature.h"

namespace cudaforge::tiles {

// A, in rows of k, or B, in columns of k. Strides in elements.
struct Operand {
  int input = 0;  // of the region
  DType dtype = DType::kFloat32;
  int64_t batch = 0;  // 0: all of the batch have the same matrix
  int64_t row = 0;    // from one row of A, or column of B, to the next
  int64_t step = 0;   // along k
  int64_t alignment = 16;
  bool frozen = false;  // its values do not change: its tiles may be kept

  bool rows_hold_k() const { return step == 1; }
  // From one row in memory to the next.
  int64_t lead() const { return rows_hold_k() ? row : step; }
};

// Sums along k of A's rows or B's columns, in float32: in the backward of a linear layer, where an
// operand is the gradient of its result, that of the bias.
struct OperandSums {
  bool of_b = false;
  int output = 0;  // of the region: their buffer, one after the other
};

// sums[b][i][j] = the sum over l of A[b][i][l] B[b][l][j].
struct Contraction {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  Operand a, b;
  // From Value::Kind::kProduct to the region's outputs; outer loops (b, i), or (i) without a batch,
  // and the inner loop (j).
  rows::Stage epilogue;
  bool has_batch = false;
  // Of several products A B, A B', A B'', without a batch: the region's inputs that are B', B'',
  // with the strides of B.
  std::vector<int> siblings;
  // Of several: the epilogues of B', B'', that differ from the first in their buffers alone. Empty
  // with siblings: `epilogue` has the sums of both products, kProduct 0 and 1.
  std::vector<rows::Stage> further_epilogues;
  std::optional<OperandSums> operand_sums;  // only of one product, without a batch

  int64_t products() const { return 1 + static_cast<int64_t>(siblings.size()); }
  // Whether each result depends on one of several products.
  bool is_apart() const { return !further_epilogues.empty(); }
  bool is_together() const { return !siblings.empty() && !is_apart(); }
};

// The product of a region, without what is computed from it.
struct Product {
  size_t node = 0;       // of the region
  bool adds = false;     // its first argument is added: addmm, baddbmm
  Contraction operands;  // without an epilogue
};

// As ReadContraction, of one product; accepts every other node.
Result<Product> ReadProduct(const OpSignature& signature);

// kNotFound: the region has no mm, addmm, bmm or baddbmm, or several that differ in their left
// operand, their sizes or strides. kUnsupported: its operands are no inputs of the region of one
// floating type, one of their strides is not 1, the rest of the region is neither pointwise nor
// sums of an operand, or the results of several products are not computed alike.
Result<Contraction> ReadContraction(const OpSignature& signature);

}  // namespace cudaforge::tiles
