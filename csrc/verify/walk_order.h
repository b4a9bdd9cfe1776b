// The order in which the screen visits a tensor's elements: by rising address where the strides
// allow it, whatever the order of the dimensions.
#pragma once

#include <cstdint>
#include <vector>

#include "signature/op_signature.h"
#include "verify/device/screen_element.h"

namespace cudaforge {

class WalkOrder {
 public:
  // kUnsupported for more dimensions than a signature may have. `spec` must outlive this.
  static Result<WalkOrder> Of(const TensorSpec& spec);

  const device::Layout& layout() const { return layout_; }
  // Whether no two elements lie at one place, as far as the strides alone show: each is larger than
  // all the smaller ones together reach. Layout::Covers needs it.
  bool nested() const { return nested_; }
  // The row-major index of element `number` of the order. REQUIRES: number < numel.
  int64_t RowMajorIndex(uint64_t number) const;

 private:
  explicit WalkOrder(const TensorSpec& spec) : spec_(&spec) {}

  const TensorSpec* spec_;
  std::vector<size_t> dims_;  // of more than one element, by falling stride; stride 0 first
  device::Layout layout_;
  bool nested_ = true;
};

}  // namespace cudaforge
