// Chooses which slices of a region's output are recomputed, and which parts of the inputs they
// need.
//
// A slice is one point of some free axes, which its tensors share: (b, s) of [B, S, H]. Other free
// axes are whole, or reduced to a few places for all slices of a batch: the columns of a matrix
// product. All other axes are whole.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "verify/axes.h"
#include "verify/large_sums.h"

namespace cudaforge {

struct SliceLimits {
  int64_t bytes = int64_t{256} << 20;     // of float64 at once, including working memory
  int64_t aim = int64_t{16} << 20;        // of all slices, if at least `fewest` fit
  int64_t most_bytes = int64_t{1} << 30;  // of all slices, over all batches
  int64_t fewest = 64, most = 4096;       // slices of a set
  int64_t elements = 1 << 15;             // compared, of an output and set
};

// Selected places of each axis of a region.
struct Selection {
  enum class Kind {
    kWhole,
    kListed,  // `places`, in that order
    kPoints,  // point t is places[t] of this axis and of every kShares axis
    kShares,  // shares another axis's points
  };
  struct Axis {
    Kind kind = Kind::kWhole;
    std::vector<int64_t> places = {};
  };
  std::vector<Axis> axes;
  int points = -1;  // the axis of that kind

  // The number of places by axis: the argument of RegionAxes::Adapted.
  std::vector<int64_t> Sizes(const RegionAxes& region) const;
  // Returns true if causal attention is cut along the queries, and so needs a mask.
  bool NeedsMask(const RegionAxes& region) const;
};

struct SliceBatch {
  Selection selection;
  // Row-major indices of elements: in the whole output, and in the cut one.
  std::vector<int64_t> elements, local;
};

class SlicePlan {
 public:
  // If one slice needs more than limits.bytes, splits the region at its large sums. kNoMemory:
  // still too much; the message has both figures. `sums`: splits that were made before.
  static Result<SlicePlan> Make(const RegionAxes& axes, const SliceLimits& limits = {},
                                std::vector<LargeSum> sums = {});

  const RegionAxes& axes() const { return axes_; }  // without its large sums
  std::span<const LargeSum> sums() const { return sums_; }
  bool whole() const { return points_axis_ < 0; }  // the whole region is one slice
  int64_t slices() const { return slices_; }       // per set, in addition to requested ones
  int64_t bytes() const { return bytes_; }         // for one batch, or a block of a sum
  int64_t work() const { return work_; }           // of one run, in bytes of all blocks
  // Returns batches with all `wanted` elements, filled up to `slices` slices drawn from `seed`. At
  // most `most` further elements. Deterministic.
  std::vector<SliceBatch> Batches(std::span<const int64_t> wanted, int64_t slices, int64_t most,
                                  uint64_t seed) const;
  // Upper bound of the memory of a run with these numbers of places per axis.
  static int64_t BytesOf(const RegionAxes& axes, std::span<const int64_t> sizes);
  Json ToJson() const;

 private:
  struct Grid {
    int axis = 0;
    int64_t keep = 0;
  };
  int64_t Bytes(int64_t points) const;
  bool MayShare(int points, int axis) const;
  void Choose(const SliceLimits& limits);
  Status Fit(const SliceLimits& limits);
  static Result<SlicePlan> MakeOf(RegionAxes axes, const SliceLimits& limits);

  RegionAxes axes_;
  std::vector<LargeSum> sums_;
  AxisList output_axes_;
  int points_axis_ = -1;
  AxisList shares_;
  std::vector<Grid> grid_;
  int64_t points_ = 1;  // in a batch, at most
  int64_t slices_ = 1;
  int64_t bytes_ = 0, work_ = 0;
};

}  // namespace cudaforge
