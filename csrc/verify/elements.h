// Elements of strided tensors held as raw bytes: reading, writing, and the spacing of their
// numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "signature/op_signature.h"

namespace cudaforge {

// Elements that one thread takes at a time (see ParallelChunks).
constexpr int64_t kChunk = 1 << 19;

// One element as a double: exact for every dtype but int64 beyond 2^53. A bool is 0 or 1 (any
// non-zero byte is 1).
double LoadElement(DType dtype, const char* from);
// Rounds to nearest even into the dtype; integers are truncated towards zero and saturate.
void StoreElement(DType dtype, double value, char* to);

// The distance between `value` and the next larger magnitude in the dtype (denormals included).
// REQUIRES: a floating dtype; finite value.
double UlpOf(DType dtype, double value);
// REQUIRES: a floating dtype.
double LargestFinite(DType dtype);
// Half the relative spacing just above 1: the rounding unit that the dtype is computed with (the
// half types are computed in float32). REQUIRES: a floating dtype.
double ComputeRoundoff(DType dtype);
// Half the smallest number above 0 that it is computed with: what rounding errs by at most where
// results are denormal. 0 for float64, whose oracle could not tell. REQUIRES: a floating dtype.
double ComputeUnderflow(DType dtype);
// `value` as the dtype would hold it: an infinity where it is too large.
double RoundTo(DType dtype, double value);

// Visits a tensor's elements in row-major order of their indices.
class ElementWalk {
 public:
  // REQUIRES: spec outlives the walk. `skip_repeats`: dimensions of stride zero are visited once.
  explicit ElementWalk(const TensorSpec& spec, bool skip_repeats = false);
  // Elements [begin, end) of that order alone. REQUIRES: 0 <= begin <= end <= what is visited.
  ElementWalk(const TensorSpec& spec, bool skip_repeats, int64_t begin, int64_t end);

  bool done() const { return left_ == 0; }
  int64_t left() const { return left_; }
  int64_t index() const { return index_; }    // row-major, counted over the visited elements
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

// The multi-index of a row-major element number.
std::vector<int64_t> Unflatten(const std::vector<int64_t>& sizes, int64_t index);

}  // namespace cudaforge
