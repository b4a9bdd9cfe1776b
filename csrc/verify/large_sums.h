// Sums over so many terms that no slice of a region fits: the loss of a batch, the mean of an
// image. The region is split at them. Each is computed in blocks, and the rest of the region takes
// its value as an input.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "verify/axes.h"

namespace cudaforge {

struct Selection;

inline constexpr size_t kReductionOfLoss = 3;  // the argument: 0: none, 1: mean, 2: sum

// A sum and the nodes before it.
struct LargeSum {
  enum class Kind {
    kAdd,      // the sum of the blocks' sums
    kAverage,  // of the blocks' means, by their sizes
    kWeighted  // a mean by weights: the blocks' sums, output 0, by their sums of weights, output 1
  };
  // The sum is its last node. Axes that it sums along are free, unless earlier nodes restrict them.
  // For inputs see SplitRegion.
  RegionAxes axes;
  Kind kind = Kind::kAdd;
  DType dtype = DType::kFloat32;  // of the region's value; blocks may use a wider one
  AxisList cut;                   // one place at a time, except the last, which is cut into parts
  int64_t length = 1;             // of a part
  int64_t bytes = 0;              // of a block, as SlicePlan::BytesOf counts
  int64_t work = 0;               // of all blocks together
  int64_t terms = 1;              // terms per value

  // Calls visit(block, its places of the last axis of `cut`) for each block, until it returns
  // false.
  void ForEachBlock(const std::function<bool(const Selection&, int64_t)>& visit) const;
};

// Inputs of `rest` and of later sums may be values of sums: their input_of is OfSum(the sum's
// index).
struct SplitRegion {
  RegionAxes rest;
  std::vector<LargeSum> sums;  // in the order in which they can be computed
};
constexpr int OfSum(size_t sum) { return -1 - static_cast<int>(sum); }
constexpr bool IsSum(int input_of) { return input_of < 0; }
constexpr size_t SumOf(int input_of) { return static_cast<size_t>(-1 - input_of); }

// Blocks have about `aim` bytes. nullopt: no sum needs more than `bytes`, or a single block does.
std::optional<SplitRegion> SplitAtSums(const RegionAxes& region, int64_t bytes, int64_t aim);

}  // namespace cudaforge
