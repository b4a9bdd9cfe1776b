#include "verify/axis_table.h"

#include <algorithm>

namespace cudaforge {

AxisList AxisTable::New(int64_t size, AxisState state) {
  if (size == 1) return {};
  axes_.push_back({size, state});
  return {static_cast<int>(axes_.size()) - 1};
}

AxisList AxisTable::Resolve(const AxisList& axes) const {
  AxisList resolved;
  for (const int axis : axes) {
    const AxisList& became = axes_[static_cast<size_t>(axis)].became;
    if (became.empty()) {
      resolved.push_back(axis);
    } else {
      const AxisList parts = Resolve(became);
      resolved.insert(resolved.end(), parts.begin(), parts.end());
    }
  }
  return resolved;
}

int64_t AxisTable::SizeOf(const AxisList& axes) const {
  int64_t size = 1;
  for (const int axis : axes) size *= axes_[static_cast<size_t>(axis)].size;
  return size;
}

void AxisTable::Restrict(const AxisList& axes, AxisState state) {
  for (const int axis : Resolve(axes)) {
    AxisState& now = axes_[static_cast<size_t>(axis)].state;
    now = std::max(now, state);
  }
}

void AxisTable::Cut(int axis, int64_t outer) {
  const Axis whole = axes_[static_cast<size_t>(axis)];
  const AxisList first = New(outer, whole.state);
  const AxisList rest = New(whole.size / outer, whole.state);
  AxisList& became = axes_[static_cast<size_t>(axis)].became;
  became = first;
  became.insert(became.end(), rest.begin(), rest.end());
}

bool AxisTable::Split(const AxisList& axes, int64_t size, AxisList* first, AxisList* rest) {
  AxisList list = Resolve(axes);
  first->clear();
  size_t next = 0;
  while (size > 1) {
    if (next == list.size()) return false;
    const int64_t here = axes_[static_cast<size_t>(list[next])].size;
    if (here == 0) return false;
    if (size % here == 0) {
      first->push_back(list[next++]);
      size /= here;
    } else if (here % size == 0) {
      Cut(list[next], size);
      list = Resolve(list);
    } else {
      return false;
    }
  }
  rest->assign(list.begin() + static_cast<std::ptrdiff_t>(next), list.end());
  return true;
}

void AxisTable::Unite(const AxisList& a, const AxisList& b) {
  AxisList left = Resolve(a), right = Resolve(b);
  while (!left.empty() && !right.empty()) {
    const int l = left[0], r = right[0];
    const int64_t l_size = size(l), r_size = size(r);
    if (l == r || l_size == r_size) {
      if (l != r) {
        axes_[static_cast<size_t>(l)].state = std::max(state(l), state(r));
        axes_[static_cast<size_t>(r)].became = {l};
      }
      left.erase(left.begin());
      right.erase(right.begin());
    } else if (l_size > r_size && r_size > 0 && l_size % r_size == 0) {
      Cut(l, r_size);
    } else if (r_size > l_size && l_size > 0 && r_size % l_size == 0) {
      Cut(r, l_size);
    } else {
      break;
    }
    left = Resolve(left);
    right = Resolve(right);
  }
  Restrict(left, AxisState::kPositional);
  Restrict(right, AxisState::kPositional);
}

}  // namespace cudaforge
