// Elements of strided tensors as raw bytes: reading, writing, and the spacing of their numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "signature/op_signature.h"

namespace cudaforge {

// Elements per chunk of a thread (see ParallelChunks).
constexpr int64_t kChunk = 1 << 19;

// One element as a double. Exact, except for int64 beyond 2^53. Any non-zero byte of a bool is 1.
double LoadElement(DType dtype, const char* from);
// Rounds to nearest even into the dtype; integers are truncated towards zero and saturate.
void StoreElement(DType dtype, double value, char* to);

// The distance from `value` to the next larger magnitude in the dtype (including denormals).
// REQUIRES: a floating dtype; finite value.
double UlpOf(DType dtype, double value);
// REQUIRES: a floating dtype.
double LargestFinite(DType dtype);
// The rounding unit of computations in this dtype: half the spacing just above 1 (half types are
// computed in float32). REQUIRES: a floating dtype.
double ComputeRoundoff(DType dtype);
// The largest rounding error of denormal results: half the smallest positive number of the
// computation's dtype. 0 for float64, which has no better oracle. REQUIRES: a floating dtype.
double ComputeUnderflow(DType dtype);
// Rounds `value` to the dtype; infinite if it is too large.
double RoundTo(DType dtype, double value);

// Visits a tensor's elements in row-major order of their indices.
class ElementWalk {
 public:
  // REQUIRES: spec outlives the walk. `skip_repeats`: dimensions of stride zero are visited once.
  explicit ElementWalk(const TensorSpec& spec, bool skip_repeats = false);
  // Visits only elements [begin, end) of that order. REQUIRES: 0 <= begin <= end <= number of
  // elements.
  ElementWalk(const TensorSpec& spec, bool skip_repeats, int64_t begin, int64_t end);

  bool done() const { return left_ == 0; }
  int64_t left() const { return left_; }
  int64_t index() const { return index_; }    // row-major, counts visited elements
  int64_t offset() const { return offset_; }  // in elements, from the first one
  const std::vector<int64_t>& position() const { return position_; }
  void Next();

 private:
  std::vector<int64_t> sizes_;
  const std::vector<int64_t>& strides_;
  std::vector<int64_t> position_;
  int64_t left_;
  int64_t index_ = 0;
  int64_t offset_ = 0;
};

// Converts a row-major index to one index per dimension.
std::vector<int64_t> Unflatten(const std::vector<int64_t>& sizes, int64_t index);

}  // namespace cudaforge
