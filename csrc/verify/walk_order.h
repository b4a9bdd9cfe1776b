// The order in which the screen visits a tensor's elements: by increasing address if the strides
// allow it, independent of the order of dimensions.
#pragma once

#include <cstdint>
#include <vector>

#include "signature/op_signature.h"
#include "verify/device/screen_element.h"

namespace cudaforge {

class WalkOrder {
 public:
  // kUnsupported: more dimensions than a signature may have. `spec` must outlive this.
  static Result<WalkOrder> Of(const TensorSpec& spec);

  const device::Layout& layout() const { return layout_; }
  // Returns true if the strides show that no two elements overlap: each is larger than the reach of
  // all smaller ones together. Layout::Covers needs it.
  bool nested() const { return nested_; }
  // The row-major index of element `number` in this order. REQUIRES: number < numel.
  int64_t RowMajorIndex(uint64_t number) const;

 private:
  explicit WalkOrder(const TensorSpec& spec) : spec_(&spec) {}

  const TensorSpec* spec_;
  std::vector<size_t> dims_;  // of more than one element, by decreasing stride; stride 0 first
  device::Layout layout_;
  bool nested_ = true;
};

}  // namespace cudaforge
