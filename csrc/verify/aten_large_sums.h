// The values of a region's large sums (large_sums.h) on some inputs, computed by blocks on the
// device where these lie.
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

// By sum; empty where there are none.
using SumValues = std::vector<at::Tensor>;
// Values by what they were computed for; of one draw of the inputs and one seed.
using KnownSums = std::map<int, SumValues>;

// All that is passed in must outlive it. Its functions throw what ATen throws. Not thread-safe.
class LargeSums {
 public:
  LargeSums(std::span<const LargeSum> sums, std::span<const at::Tensor> inputs, uint64_t seed,
            KnownSums* known)
      : sums_(sums), inputs_(inputs), seed_(seed), known_(*known) {}

  Result<SumValues> Float64();
  // After move number `move` of the inputs (CutRegion::Float64Moved).
  Result<SumValues> Moved(int move);
  // All moves from the next that Moved is asked for to number `end` - 1 will be asked for.
  void WillMove(int end) { moves_end_ = end; }
  // In the sums' dtypes: 0: ATen's sums of blocks, added up by ATen; else order `order` of
  // SumOrders, counted from 1. One accumulator goes on from block to block.
  Result<SumValues> Aten(size_t order = 0);

 private:
  using SumFunction = std::function<Result<at::Tensor>(const LargeSum&, const SumValues& before)>;
  using BlockFunction = std::function<void(CutRegion&, int64_t places)>;
  using RunFunction = std::function<std::vector<at::Tensor>(CutRegion&)>;

  // What is known, or the sums' values one after the other.
  Result<SumValues> Evaluate(int key, const SumFunction& value_of);
  Status ForEachBlock(const LargeSum& sum, const SumValues& before,
                      const BlockFunction& visit) const;
  Result<at::Tensor> InFloat64(const LargeSum& sum, const SumValues& before,
                               const RunFunction& run) const;
  // Of the only sum, by one pass over its blocks; orders where they concern its last call alone.
  Status InMoves(int from, int end);
  Status InAllOrders();

  std::span<const LargeSum> sums_;
  std::span<const at::Tensor> inputs_;
  const uint64_t seed_;
  KnownSums& known_;
  int moves_end_ = 0;
};

}  // namespace cudaforge
