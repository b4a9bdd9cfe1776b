#include "verify/slice_plan.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "signature/op_facts.h"

namespace cudaforge {
namespace {

// For each number of an input: its offset in memory, and its perturbation.
constexpr int64_t kBytesOfInput = 24;
constexpr int64_t kBytesOfValue = 8;

int64_t CountOf(const RegionAxes::Dims& dims, std::span<const int64_t> sizes) {
  int64_t count = 1;
  for (const AxisList& dim : dims) {
    for (const int axis : dim) count *= sizes[static_cast<size_t>(axis)];
  }
  return count;
}

bool Contains(const RegionAxes::Dims& dims, int axis) {
  return std::any_of(dims.begin(), dims.end(), [&](const AxisList& dim) {
    return std::find(dim.begin(), dim.end(), axis) != dim.end();
  });
}

void ForEachTensorOf(const RegionAxes& axes, const auto& visit) {
  for (const RegionAxes::Dims& dims : axes.inputs) visit(dims);
  for (const auto& node : axes.nodes) {
    for (const RegionAxes::Dims& dims : node) visit(dims);
  }
}

// Working memory of ATen's float64 kernels, in numbers.
int64_t WorkingNumbers(const RegionAxes& axes, size_t n, std::span<const int64_t> sizes) {
  const Node& node = axes.signature.nodes[n];
  auto dims_of = [&](size_t argument) -> const RegionAxes::Dims& {
    const Json& reference = node.args[argument];
    if (reference.contains("in")) return axes.inputs[reference["in"].get<size_t>()];
    return axes.nodes[reference["node"].get<size_t>()][reference["out"].get<size_t>()];
  };
  switch (FactsOf(node.op).dims) {
    case OpDims::kAttention:  // scores, their softmax, and a mask
      return IsTensorReference(node.args[0]) && axes.inputs.size() > 0
                 ? 4 * CountOf(axes.MaskDims(n), sizes)
                 : 0;
    case OpDims::kConvolution:
    case OpDims::kConvolutionBackward: {
      const bool backward = FactsOf(node.op).dims == OpDims::kConvolutionBackward;
      const RegionAxes::Dims& made = backward ? dims_of(0) : axes.nodes[n][0];
      const RegionAxes::Dims& weight = dims_of(backward ? 2 : 1);
      if (made.size() < 3 || weight.size() < 3) return 0;
      const int64_t channels = std::max<int64_t>(CountOf({made[1]}, sizes), 1);
      const int64_t filters = std::max<int64_t>(CountOf({weight[0]}, sizes), 1);
      return CountOf(made, sizes) / channels * (CountOf(weight, sizes) / filters);
    }
    default:
      return 0;
  }
}

}  // namespace

std::vector<int64_t> Selection::Sizes(const RegionAxes& region) const {
  std::vector<int64_t> sizes;
  for (size_t a = 0; a < axes.size(); ++a) {
    const bool listed = axes[a].kind == Kind::kListed || static_cast<int>(a) == points;
    sizes.push_back(listed                          ? static_cast<int64_t>(axes[a].places.size())
                    : axes[a].kind == Kind::kShares ? 1
                                                    : region.axes[a].size);
  }
  return sizes;
}

bool Selection::NeedsMask(const RegionAxes& region) const {
  for (size_t n = 0; n < region.causal.size(); ++n) {
    if (!region.causal[n]) continue;
    const RegionAxes::Dims dims = region.MaskDims(n);
    for (const int axis : dims[dims.size() - 2]) {
      if (axes[static_cast<size_t>(axis)].kind != Kind::kWhole) return true;
    }
  }
  return false;
}

int64_t SlicePlan::BytesOf(const RegionAxes& axes, std::span<const int64_t> sizes) {
  int64_t bytes = 0;
  for (const RegionAxes::Dims& dims : axes.inputs) bytes += kBytesOfInput * CountOf(dims, sizes);
  for (size_t n = 0; n < axes.nodes.size(); ++n) {
    for (const RegionAxes::Dims& dims : axes.nodes[n]) {
      bytes += kBytesOfValue * CountOf(dims, sizes);
    }
    bytes += kBytesOfValue * WorkingNumbers(axes, n, sizes);
  }
  return bytes;
}

int64_t SlicePlan::Bytes(int64_t points) const {
  std::vector<int64_t> sizes;
  for (const RegionAxes::Axis& axis : axes_.axes) sizes.push_back(axis.size);
  for (const int axis : shares_) sizes[static_cast<size_t>(axis)] = 1;
  for (const Grid& grid : grid_) sizes[static_cast<size_t>(grid.axis)] = grid.keep;
  if (points_axis_ >= 0) sizes[static_cast<size_t>(points_axis_)] = points;
  return BytesOf(axes_, sizes);
}

// Returns true if every tensor with `axis` also has `points`. Only then can one point select in
// both.
bool SlicePlan::MayShare(int points, int axis) const {
  bool may = true;
  ForEachTensorOf(axes_, [&](const RegionAxes::Dims& dims) {
    may = may && (!Contains(dims, axis) || Contains(dims, points));
  });
  return may;
}

void SlicePlan::Choose(const SliceLimits& limits) {
  const AxisList free = axes_.FreeAxes();
  int64_t least = std::numeric_limits<int64_t>::max();
  int best = -1;
  for (const int points : free) {
    points_axis_ = points;
    shares_.clear();
    for (const int axis : free) {
      if (axis != points && MayShare(points, axis)) shares_.push_back(axis);
    }
    if (const int64_t bytes = Bytes(1); bytes < least) {
      least = bytes;
      best = points;
    }
  }
  points_axis_ = best;
  shares_.clear();
  for (const int axis : free) {
    if (axis != best && MayShare(best, axis)) shares_.push_back(axis);
  }
  // Inner axes stay whole if slices stay small.
  for (size_t i = shares_.size(); i-- > 0;) {
    const int axis = shares_[i];
    shares_.erase(shares_.begin() + static_cast<std::ptrdiff_t>(i));
    if (Bytes(limits.fewest) <= limits.aim) continue;
    shares_.insert(shares_.begin() + static_cast<std::ptrdiff_t>(i), axis);
  }
  for (const int axis : free) {
    if (axis == best || std::find(shares_.begin(), shares_.end(), axis) != shares_.end()) continue;
    grid_.push_back({axis, axes_.axes[static_cast<size_t>(axis)].size});
  }
}

Status SlicePlan::Fit(const SliceLimits& limits) {
  auto halve = [&](int64_t least) {
    Grid* largest = nullptr;
    for (Grid& grid : grid_) {
      if (grid.keep > least && (largest == nullptr || grid.keep > largest->keep)) largest = &grid;
    }
    if (largest != nullptr) largest->keep = std::max(largest->keep / 2, least);
    return largest != nullptr;
  };
  while (Bytes(limits.fewest) > limits.aim && halve(limits.fewest)) {
  }
  while (Bytes(1) > limits.bytes && halve(1)) {
  }
  std::erase_if(grid_, [&](const Grid& grid) {
    return grid.keep == axes_.axes[static_cast<size_t>(grid.axis)].size;
  });
  const int64_t one = Bytes(1);
  if (one > limits.bytes) {
    return Status::NoMemory("a slice of its output needs " + std::to_string(one) +
                            " bytes in float64; " + std::to_string(limits.bytes) + " are allowed");
  }
  const int64_t each = std::max<int64_t>(Bytes(2) - one, 1);
  points_ = std::min((limits.bytes - one) / each + 1, limits.most);
  int64_t there = axes_.axes[static_cast<size_t>(points_axis_)].size;
  for (const int axis : shares_) there *= axes_.axes[static_cast<size_t>(axis)].size;
  const int64_t of_aim = std::max(limits.aim / each, limits.fewest);
  const int64_t of_bytes = std::max<int64_t>(limits.most_bytes / std::max(each, one / points_), 4);
  slices_ = std::min({of_aim, of_bytes, limits.most, there});
  bytes_ = Bytes(std::min(points_, slices_));
  return Status::Ok();
}

Result<SlicePlan> SlicePlan::Make(const RegionAxes& axes, const SliceLimits& limits,
                                  std::vector<LargeSum> sums) {
  Result<SlicePlan> plan = MakeOf(axes, limits);
  if (plan.status().code() == StatusCode::kNoMemory && sums.empty()) {
    // CPU caches and allocators work best with small blocks, GPUs with large ones.
    const bool on_cpu = axes.signature.device == DeviceType::kCpu;
    std::optional<SplitRegion> split =
        SplitAtSums(axes, limits.bytes, on_cpu ? limits.aim : limits.bytes);
    if (!split.has_value()) return plan;
    sums = std::move(split->sums);
    plan = MakeOf(std::move(split->rest), limits);
  }
  CF_RETURN_IF_ERROR(plan.status());
  plan->work_ = plan->bytes_;
  for (const LargeSum& sum : sums) {
    plan->bytes_ = std::max(plan->bytes_, sum.bytes);
    plan->work_ += sum.work;
  }
  plan->sums_ = std::move(sums);
  return plan;
}

Result<SlicePlan> SlicePlan::MakeOf(RegionAxes axes, const SliceLimits& limits) {
  SlicePlan plan;
  plan.axes_ = std::move(axes);
  plan.output_axes_ = plan.axes_.OutputAxes();
  plan.bytes_ = plan.Bytes(1);
  if (plan.bytes_ <= limits.aim) return plan;
  if (plan.axes_.FreeAxes().empty()) {
    if (plan.bytes_ <= limits.bytes) return plan;
    return Status::NoMemory("no dimension of its output is free, and all of it needs " +
                            std::to_string(plan.bytes_) + " bytes in float64; " +
                            std::to_string(limits.bytes) + " are allowed");
  }
  plan.Choose(limits);
  CF_RETURN_IF_ERROR(plan.Fit(limits));
  return plan;
}

Json SlicePlan::ToJson() const {
  Json kept = Json::array();
  for (const Grid& grid : grid_) {
    kept.push_back(Json::array({axes_.axes[static_cast<size_t>(grid.axis)].size, grid.keep}));
  }
  return {{"axes", axes_.ToJson()},   {"whole", whole()}, {"slices", slices_},   {"bytes", bytes_},
          {"shared", shares_.size()}, {"kept", kept},     {"sums", sums_.size()}};
}

}  // namespace cudaforge
