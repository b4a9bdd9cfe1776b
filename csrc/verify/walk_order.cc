#include "verify/walk_order.h"

#include <algorithm>

namespace cudaforge {

Result<WalkOrder> WalkOrder::Of(const TensorSpec& spec) {
  WalkOrder order(spec);
  for (size_t d = 0; d < spec.sizes.size(); ++d) {
    if (spec.sizes[d] != 1) order.dims_.push_back(d);
  }
  const auto rank = [&](size_t d) { return spec.strides[d] == 0 ? INT64_MAX : spec.strides[d]; };
  std::stable_sort(order.dims_.begin(), order.dims_.end(),
                   [&](size_t a, size_t b) { return rank(a) > rank(b); });
  if (order.dims_.size() > device::kMostDims) {
    return Status::Unsupported("a tensor of more than 8 dimensions");
  }
  int64_t reach = 0;  // of the inner dimensions
  for (size_t i = order.dims_.size(); i-- > 0;) {
    const int64_t stride = spec.strides[order.dims_[i]];
    if (stride <= reach) order.nested_ = false;
    reach += stride * (spec.sizes[order.dims_[i]] - 1);
  }
  device::Layout& layout = order.layout_;
  for (const size_t d : order.dims_) {
    const auto size = static_cast<uint64_t>(spec.sizes[d]);
    const auto stride = static_cast<uint64_t>(spec.strides[d]);
    if (layout.dims > 0 && layout.strides[layout.dims - 1] == stride * size) {
      layout.sizes[layout.dims - 1] *= size;
      layout.strides[layout.dims - 1] = stride;
      continue;
    }
    layout.sizes[layout.dims] = size;
    layout.strides[layout.dims] = stride;
    ++layout.dims;
  }
  return order;
}

int64_t WalkOrder::RowMajorIndex(uint64_t number) const {
  std::vector<int64_t> position(spec_->sizes.size(), 0);
  for (size_t i = dims_.size(); i-- > 0;) {
    const auto size = static_cast<uint64_t>(spec_->sizes[dims_[i]]);
    position[dims_[i]] = static_cast<int64_t>(number % size);
    number /= size;
  }
  int64_t index = 0;
  for (size_t d = 0; d < position.size(); ++d) index = index * spec_->sizes[d] + position[d];
  return index;
}

}  // namespace cudaforge
