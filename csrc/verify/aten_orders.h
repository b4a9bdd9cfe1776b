// ATen's sums in other orders that a correct kernel may use. Shows the effect of rounding.
#pragma once

#include <cstdint>
#include <vector>

#include "signature/aten_pch.h"
#include "signature/from_aten_region.h"

namespace cudaforge {

struct SumOrder {
  int64_t parts = 1;        // partial sums, which are added one after the other
  bool strided = false;     // part p has every parts-th number from p; else a contiguous block
  bool one_by_one = false;  // one accumulator per part; else a part is ATen's sum
  uint64_t shuffle = 0;     // not 0: the seed of a random order of the terms
  bool among_few = false;   // see Orders (aten_slice_set.h)
};

// One accumulator; 2, 4 and 8 blocks; 16 and 32 lanes with one accumulator each. A single
// accumulator has the largest errors. among_few: 4 blocks, which is as fast as ATen.
const std::vector<SumOrder>& SumOrders();

// Returns true if the sums of one of the region's calls can be rewritten (OpSums).
bool HasSums(const OpSignature& signature);

// For RegionProgram::RunWith: runs those calls with their sums in this order, in ATen's
// accumulation type. A single accumulator runs on the host up to 4 Mi terms (16 Mi of a product).
// Above that it takes at most 1,024 steps, each ATen's sum of neighbours. REQUIRES: the signature
// outlives the result.
RegionProgram::Instead InOrder(const OpSignature& signature, SumOrder order);

// For scans and losses of labels: replaces the arguments by the results. False: not handled, ATen
// runs it.
bool ScanInOrder(torch::jit::Stack* stack, SumOrder order);
bool LossInOrder(torch::jit::Stack* stack, SumOrder order);

// Converts to ATen's accumulation type for the dtype.
at::Tensor InOpMath(const at::Tensor& tensor);

// Returns the dimensions that a sum or mean reduces, from its arguments; sorted.
std::vector<int64_t> SummedDims(const torch::jit::Stack& arguments);

// The sum of `terms` along `dims`, kept with size 1.
at::Tensor SumInOrder(const at::Tensor& terms, at::IntArrayRef dims, SumOrder order);

}  // namespace cudaforge
