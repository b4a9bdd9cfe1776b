#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "verify/slice_plan.h"

namespace cudaforge {
namespace {

using Coordinates = std::vector<int64_t>;
using Kind = Selection::Kind;

// A batch to which elements are being added.
struct OpenBatch {
  std::map<Coordinates, int64_t> points;  // of the axis of points and those that share
  std::vector<std::set<int64_t>> kept;    // by Grid
  std::vector<int64_t> wanted;
};

// The digits of a number, the lowest last.
Coordinates Digits(int64_t number, const std::vector<int64_t>& sizes) {
  Coordinates digits(sizes.size());
  for (size_t i = sizes.size(); i-- > 0;) {
    digits[i] = number % sizes[i];
    number /= sizes[i];
  }
  return digits;
}

int64_t NumberOf(const Coordinates& digits, const std::vector<int64_t>& sizes) {
  int64_t number = 0;
  for (size_t i = 0; i < sizes.size(); ++i) number = number * sizes[i] + digits[i];
  return number;
}

int64_t Product(const std::vector<int64_t>& sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

// Maps an output's elements to positions in the selected part, and back.
class OutputMap {
 public:
  OutputMap(const RegionAxes& region, const AxisList& axes, const Selection& selection)
      : axes_(axes), selection_(selection) {
    const std::vector<int64_t> sizes = selection.Sizes(region);
    for (const int axis : axes) {
      all_.push_back(region.axes[static_cast<size_t>(axis)].size);
      left_.push_back(sizes[static_cast<size_t>(axis)]);
      if (axis == selection.points) points_at_ = left_.size() - 1;
      places_.emplace_back();
      const Selection::Axis& one = selection.axes[static_cast<size_t>(axis)];
      if (one.kind != Kind::kListed) continue;
      for (size_t i = 0; i < one.places.size(); ++i) {
        places_.back()[one.places[i]] = static_cast<int64_t>(i);
      }
    }
  }

  int64_t left() const { return Product(left_); }
  Coordinates Of(int64_t element) const { return Digits(element, all_); }

  int64_t ToAll(int64_t local) const {
    Coordinates at = Digits(local, left_);
    const int64_t point = points_at_ < at.size() ? at[points_at_] : 0;
    for (size_t i = 0; i < at.size(); ++i) {
      const Selection::Axis& one = selection_.axes[static_cast<size_t>(axes_[i])];
      if (one.kind == Kind::kWhole) continue;
      at[i] = one.places[static_cast<size_t>(one.kind == Kind::kListed ? at[i] : point)];
    }
    return NumberOf(at, all_);
  }
  // REQUIRES: point `point` contains the element.
  int64_t ToLocal(int64_t element, int64_t point) const {
    Coordinates at = Digits(element, all_);
    for (size_t i = 0; i < at.size(); ++i) {
      switch (selection_.axes[static_cast<size_t>(axes_[i])].kind) {
        case Kind::kWhole:
          break;
        case Kind::kListed:
          at[i] = places_[i].at(at[i]);
          break;
        case Kind::kPoints:
          at[i] = point;
          break;
        case Kind::kShares:
          at[i] = 0;
          break;
      }
    }
    return NumberOf(at, left_);
  }

 private:
  const AxisList& axes_;
  const Selection& selection_;
  std::vector<int64_t> all_, left_;
  size_t points_at_ = static_cast<size_t>(-1);
  std::vector<std::map<int64_t, int64_t>> places_;
};

}  // namespace

std::vector<SliceBatch> SlicePlan::Batches(std::span<const int64_t> wanted, int64_t slices,
                                           int64_t most, uint64_t seed) const {
  SplitMix random(seed);
  AxisList joint = shares_;
  if (!whole()) joint.insert(joint.begin(), points_axis_);
  std::vector<int64_t> all;
  for (const int axis : output_axes_) all.push_back(axes_.axes[static_cast<size_t>(axis)].size);
  auto digit = [&](const Coordinates& at, int axis) {
    const auto found = std::find(output_axes_.begin(), output_axes_.end(), axis);
    return at[static_cast<size_t>(found - output_axes_.begin())];
  };
  auto point_of = [&](int64_t element) {
    const Coordinates at = Digits(element, all);
    Coordinates point;
    for (const int axis : joint) point.push_back(digit(at, axis));
    return point;
  };

  std::vector<OpenBatch> open;
  auto start = [&]() -> OpenBatch& {
    open.emplace_back();
    open.back().kept.resize(grid_.size());
    return open.back();
  };
  auto take = [&](OpenBatch* batch, int64_t element) {
    const Coordinates at = Digits(element, all), point = point_of(element);
    if (!batch->points.contains(point) && static_cast<int64_t>(batch->points.size()) >= points_) {
      return false;
    }
    for (size_t g = 0; g < grid_.size(); ++g) {
      const std::set<int64_t>& kept = batch->kept[g];
      if (!kept.contains(digit(at, grid_[g].axis)) &&
          static_cast<int64_t>(kept.size()) >= grid_[g].keep) {
        return false;
      }
    }
    batch->points.emplace(point, static_cast<int64_t>(batch->points.size()));
    for (size_t g = 0; g < grid_.size(); ++g) batch->kept[g].insert(digit(at, grid_[g].axis));
    batch->wanted.push_back(element);
    return true;
  };
  for (const int64_t element : wanted) {
    bool taken = false;
    for (OpenBatch& batch : open) taken = taken || take(&batch, element);
    if (!taken) CF_CHECK(take(&start(), element)) << "an empty batch takes any element";
  }
  int64_t made = 0;
  for (const OpenBatch& batch : open) made += static_cast<int64_t>(batch.points.size());
  if (whole() && open.empty() && slices > 0) start().points.emplace(Coordinates{}, 0);
  for (int64_t tries = 0; !whole() && made < slices && tries < 4 * slices; ++tries) {
    Coordinates point;
    for (const int axis : joint) {
      const int64_t size = axes_.axes[static_cast<size_t>(axis)].size;
      point.push_back(static_cast<int64_t>(random.Below(static_cast<uint64_t>(size))));
    }
    OpenBatch* batch = nullptr;
    for (OpenBatch& one : open) {
      if (static_cast<int64_t>(one.points.size()) < points_) batch = &one;
    }
    if (batch == nullptr) batch = &start();
    made += batch->points.emplace(point, static_cast<int64_t>(batch->points.size())).second;
  }

  std::vector<SliceBatch> batches;
  for (OpenBatch& from : open) {
    SliceBatch batch;
    batch.selection.axes.resize(axes_.axes.size());
    batch.selection.points = points_axis_;
    for (size_t j = 0; j < joint.size(); ++j) {
      Selection::Axis& axis = batch.selection.axes[static_cast<size_t>(joint[j])];
      axis.kind = j == 0 ? Kind::kPoints : Kind::kShares;
      axis.places.resize(from.points.size());
      for (const auto& [point, t] : from.points) axis.places[static_cast<size_t>(t)] = point[j];
    }
    for (size_t g = 0; g < grid_.size(); ++g) {
      std::set<int64_t>& kept = from.kept[g];
      const auto size = static_cast<uint64_t>(axes_.axes[static_cast<size_t>(grid_[g].axis)].size);
      while (slices > 0 && static_cast<int64_t>(kept.size()) < grid_[g].keep) {
        kept.insert(static_cast<int64_t>(random.Below(size)));
      }
      if (kept.empty()) kept.insert(0);
      batch.selection.axes[static_cast<size_t>(grid_[g].axis)] = {
          Kind::kListed, std::vector<int64_t>(kept.begin(), kept.end())};
    }
    const OutputMap map(axes_, output_axes_, batch.selection);
    std::unordered_set<int64_t> chosen;
    auto add = [&](int64_t local) {
      if (chosen.insert(local).second) batch.local.push_back(local);
    };
    for (const int64_t element : from.wanted) {
      add(map.ToLocal(element, whole() ? 0 : from.points.at(point_of(element))));
    }
    const int64_t share = most / static_cast<int64_t>(open.size());
    if (map.left() <= share) {
      for (int64_t local = 0; local < map.left(); ++local) add(local);
    } else {
      for (int64_t i = 0; i < share; ++i) {
        add(static_cast<int64_t>(random.Below(static_cast<uint64_t>(map.left()))));
      }
    }
    for (const int64_t local : batch.local) batch.elements.push_back(map.ToAll(local));
    batches.push_back(std::move(batch));
  }
  return batches;
}

}  // namespace cudaforge
