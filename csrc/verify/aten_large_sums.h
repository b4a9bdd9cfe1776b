// Computes the values of a region's large sums (large_sums.h) in blocks, on the inputs' device.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/status.h"
#include "signature/aten_pch.h"
#include "verify/aten_orders.h"
#include "verify/aten_slices.h"
#include "verify/large_sums.h"

namespace cudaforge {

// By sum; empty if there are none.
using SumValues = std::vector<at::Tensor>;
// Values by what they were computed for. Valid for one draw of the inputs and one seed.
using KnownSums = std::map<int, SumValues>;

// All arguments must outlive it. Throws what ATen throws. Not thread-safe.
class LargeSums {
 public:
  LargeSums(std::span<const LargeSum> sums, std::span<const at::Tensor> inputs, uint64_t seed,
            KnownSums* known)
      : sums_(sums), inputs_(inputs), seed_(seed), known_(*known) {}

  Result<SumValues> Float64();
  // After perturbation number `move` of the inputs (CutRegion::Float64Perturbed).
  Result<SumValues> Perturbed(int move);
  // Announces that Perturbed will be called for all perturbations up to number `end` - 1.
  void WillPerturb(int end) { perturbations_end_ = end; }
  // In the sums' dtypes. 0: ATen's sums of blocks, added by ATen. Otherwise order `order` of
  // SumOrders, counted from 1. A single accumulator continues from block to block.
  Result<SumValues> Aten(size_t order = 0);

 private:
  using SumFunction = std::function<Result<at::Tensor>(const LargeSum&, const SumValues& before)>;
  using BlockFunction = std::function<void(CutRegion&, int64_t places)>;
  using RunFunction = std::function<std::vector<at::Tensor>(CutRegion&)>;

  // Returns known values, or computes the sums one after the other.
  Result<SumValues> Evaluate(int key, const SumFunction& value_of);
  Status ForEachBlock(const LargeSum& sum, const SumValues& before,
                      const BlockFunction& visit) const;
  Result<at::Tensor> InFloat64(const LargeSum& sum, const SumValues& before,
                               const RunFunction& run) const;
  // For a single sum: computes several perturbations in one pass over its blocks.
  Status PerturbRange(int from, int end);
  Status InAllOrders();

  std::span<const LargeSum> sums_;
  std::span<const at::Tensor> inputs_;
  const uint64_t seed_;
  KnownSums& known_;
  int perturbations_end_ = 0;
};

}  // namespace cudaforge
