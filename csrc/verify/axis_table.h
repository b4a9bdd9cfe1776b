// Finds which dimensions of several tensors are the same axis. An axis is split if another tensor
// has two dimensions in its place.
#pragma once

#include <cstdint>
#include <vector>

namespace cudaforge {

// How an axis may be cut and reordered. Each value adds to the restrictions of those before it.
enum class AxisState {
  kFree,        // any of its places, in any order, without changing the results there
  kPermutable,  // all of its places, in any order: sums run along it
  kPositional,  // all of its places, in their order
};

// A dimension: its axes, the outermost first. Empty for size 1.
using AxisList = std::vector<int>;

// Axes by number. Numbers stay valid after Unite and Split: Resolve returns the current axes. Not
// thread-safe.
class AxisTable {
 public:
  // Makes one axis; none if `size` is 1.
  AxisList New(int64_t size, AxisState state = AxisState::kFree);
  // Declares that both lists are the same places. If no axes fit both, they become positional.
  void Unite(const AxisList& a, const AxisList& b);
  void Restrict(const AxisList& axes, AxisState state);
  // Returns the current axes.
  AxisList Resolve(const AxisList& axes) const;
  // Splits the list in two, the first of `size` places. False if there is no boundary there.
  bool Split(const AxisList& axes, int64_t size, AxisList* first, AxisList* rest);

  int64_t SizeOf(const AxisList& axes) const;
  // REQUIRES: a resolved axis.
  int64_t size(int axis) const { return axes_[static_cast<size_t>(axis)].size; }
  AxisState state(int axis) const { return axes_[static_cast<size_t>(axis)].state; }
  size_t count() const { return axes_.size(); }

 private:
  struct Axis {
    int64_t size = 1;
    AxisState state = AxisState::kFree;
    AxisList became = {};  // united: one other axis; split: its parts
  };
  // Splits `axis` into `outer` places and the rest. REQUIRES: resolved; outer divides its size.
  void Cut(int axis, int64_t outer);

  std::vector<Axis> axes_;
};

}  // namespace cudaforge
