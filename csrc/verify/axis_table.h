// Which dimensions of several tensors are one and the same axis. An axis is split where one tensor
// has two dimensions in place of another's one.
#pragma once

#include <cstdint>
#include <vector>

namespace cudaforge {

// What an axis may be cut down to, and in what order. A later one includes what earlier ones
// forbid.
enum class AxisState {
  kFree,        // any of its places, in any order, without another answer at these places
  kPermutable,  // all of its places, in any order: sums run along it
  kPositional,  // all of its places, in their order
};

// A dimension: its axes, the outermost first. Of size 1: none.
using AxisList = std::vector<int>;

// Axes by number. Numbers that were united or split stay valid: Resolve says what became of them.
// Not thread-safe.
class AxisTable {
 public:
  // One axis; none where `size` is 1.
  AxisList New(int64_t size, AxisState state = AxisState::kFree);
  // Both lists are the same places. Where no axes that fit both exist, they become positional.
  void Unite(const AxisList& a, const AxisList& b);
  void Restrict(const AxisList& axes, AxisState state);
  // The axes today, none of them split.
  AxisList Resolve(const AxisList& axes) const;
  // Cuts the list in two, the first of `size` places; false where it cannot be cut there.
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
    AxisList became = {};  // united: one other; split: its parts
  };
  // Splits `axis` into `outer` places and the rest. REQUIRES: resolved; outer divides its size.
  void Cut(int axis, int64_t outer);

  std::vector<Axis> axes_;
};

}  // namespace cudaforge
