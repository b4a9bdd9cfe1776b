// ATen's sums in other orders that a right kernel may add in: what its rounding comes to.
#pragma once

#include <cstdint>
#include <vector>

#include "signature/aten_pch.h"
#include "signature/from_aten_region.h"

namespace cudaforge {

struct SumOrder {
  int64_t parts = 1;        // sums that are added up at the end, one after the other
  bool strided = false;     // part p has every parts-th number from p; else a block of them
  bool one_by_one = false;  // one accumulator a part; else a part is ATen's sum
  uint64_t shuffle = 0;     // not 0: the terms are put in an order drawn by it first
  bool among_few = false;   // see Orders (aten_slice_set.h)
};

// One accumulator; 2, 4 and 8 blocks; 16 and 32 lanes of one accumulator each. One accumulator errs
// most. The few: 4 blocks, which are as fast as ATen.
const std::vector<SumOrder>& SumOrders();

// Whether one of the region's calls is among those whose sums can be written out (OpSums).
bool HasSums(const OpSignature& signature);

// For RegionProgram::RunWith: those calls with their sums in this order, accumulated in the type
// that ATen computes their dtype in. One accumulator runs on the host up to 4 Mi terms (16 Mi of a
// product); beyond that in at most 1,024 steps, each ATen's sum of a few neighbours. REQUIRES: the
// signature outlives the result.
RegionProgram::Instead InOrder(const OpSignature& signature, SumOrder order);

// Of a scan, and of a loss of labels: the results in place of the arguments. False: left to ATen.
bool ScanInOrder(torch::jit::Stack* stack, SumOrder order);
bool LossInOrder(torch::jit::Stack* stack, SumOrder order);

// In the type that ATen computes its dtype in.
at::Tensor InOpMath(const at::Tensor& tensor);

// The dimensions that a call of a sum or mean adds up along, by its arguments; sorted.
std::vector<int64_t> SummedDims(const torch::jit::Stack& arguments);

// The sum of `terms` along `dims`, which are kept with size 1.
at::Tensor SumInOrder(const at::Tensor& terms, at::IntArrayRef dims, SumOrder order);

}  // namespace cudaforge
