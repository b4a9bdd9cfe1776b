// Which slices of a region's output are computed once more, and what they need of the inputs.
//
// A slice is one point of some free axes, which the tensors that have them share: (b, s) of
// [B, S, H]. Other free axes are whole, or cut down to a few places that all slices of a batch
// share: the columns of a matrix product. All else is whole.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "verify/axes.h"
#include "verify/large_sums.h"

namespace cudaforge {

struct SliceLimits {
  int64_t bytes = int64_t{256} << 20;     // of float64 at once, working memory included
  int64_t aim = int64_t{16} << 20;        // of all slices, where they can be as few as `fewest`
  int64_t most_bytes = int64_t{1} << 30;  // of all slices, one batch after the other
  int64_t fewest = 64, most = 4096;       // slices of a set
  int64_t elements = 1 << 15;             // that are compared, of an output and set
};

// Some places of each axis of a region.
struct Selection {
  enum class Kind {
    kWhole,
    kListed,  // `places`, in that order
    kPoints,  // point t is places[t] of this axis and of every kShares axis
    kShares,  // has one place for each point, and so none of its own
  };
  struct Axis {
    Kind kind = Kind::kWhole;
    std::vector<int64_t> places = {};
  };
  std::vector<Axis> axes;
  int points = -1;  // the axis of that kind

  // Places by axis: what RegionAxes::Adapted takes.
  std::vector<int64_t> Sizes(const RegionAxes& region) const;
  // Whether attention that hides later keys is cut where it counts queries.
  bool NeedsMask(const RegionAxes& region) const;
};

struct SliceBatch {
  Selection selection;
  // Elements of the output: their row-major numbers in all of it, and in what is left of it.
  std::vector<int64_t> elements, local;
};

class SlicePlan {
 public:
  // Where even one slice needs more than limits.bytes, the region is split at its large sums.
  // kNoMemory: nor is that enough; the message has both figures. `sums`: what `axes` was split at
  // already.
  static Result<SlicePlan> Make(const RegionAxes& axes, const SliceLimits& limits = {},
                                std::vector<LargeSum> sums = {});

  const RegionAxes& axes() const { return axes_; }  // without its large sums
  std::span<const LargeSum> sums() const { return sums_; }
  bool whole() const { return points_axis_ < 0; }  // all of it is one slice
  int64_t slices() const { return slices_; }       // for a set, beside those that are asked for
  int64_t bytes() const { return bytes_; }         // for one batch, or a block of a sum
  int64_t work() const { return work_; }           // of one run, in bytes of all blocks
  // Batches that have all `wanted` elements, and `slices` slices if there are as many, drawn by
  // `seed` where not asked for; at most `most` elements beside the wanted ones. Deterministic.
  std::vector<SliceBatch> Batches(std::span<const int64_t> wanted, int64_t slices, int64_t most,
                                  uint64_t seed) const;
  // What a run of the region with so many places of each axis needs at most.
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
